#include "dtrain/data/glyph_shapes.h"

#include <initializer_list>

#include "dtrain/core/base/error.h"

namespace dtrain {

namespace {

constexpr GlyphStroke stroke(bool bent, std::initializer_list<GlyphPoint> points) {
  GlyphStroke result;
  result.bent = bent;
  for (const GlyphPoint& point : points) {
    result.points[static_cast<std::size_t>(result.count++)] = point;
  }
  return result;
}

constexpr GlyphStroke lines(std::initializer_list<GlyphPoint> points) {
  return stroke(false, points);
}

constexpr GlyphStroke curve(std::initializer_list<GlyphPoint> points) {
  return stroke(true, points);
}

constexpr GlyphStroke ellipse(float x, float y, float rx, float ry) {
  constexpr float diagonal = 0.70710678f;
  const float dx = diagonal * rx;
  const float dy = diagonal * ry;
  return curve({{x, y - ry},
                {x + dx, y - dy},
                {x + rx, y},
                {x + dx, y + dy},
                {x, y + ry},
                {x - dx, y + dy},
                {x - rx, y},
                {x - dx, y - dy},
                {x, y - ry}});
}

constexpr GlyphStyle style(std::initializer_list<GlyphStroke> strokes) {
  GlyphStyle result;
  for (const GlyphStroke& part : strokes) {
    result.strokes[static_cast<std::size_t>(result.count++)] = part;
  }
  return result;
}

constexpr std::array zero{
    style({ellipse(0, 0, 0.55f, 0.88f)}),
    style({ellipse(0, 0, 0.38f, 0.85f)}),
    style({ellipse(0, 0, 0.62f, 0.7f)}),
};
constexpr std::array one{
    style({lines({{0, -0.9f}, {0, 0.9f}})}),
    style({lines({{-0.35f, -0.5f}, {0.05f, -0.9f}, {0.05f, 0.9f}})}),
    style({lines({{-0.3f, -0.55f}, {0.02f, -0.9f}, {0.02f, 0.88f}}),
           lines({{-0.4f, 0.88f}, {0.42f, 0.88f}})}),
};
constexpr std::array two{
    style({curve({{-0.5f, -0.5f},
                  {-0.32f, -0.83f},
                  {0.12f, -0.9f},
                  {0.48f, -0.55f},
                  {0.3f, -0.05f},
                  {-0.1f, 0.4f},
                  {-0.52f, 0.85f}}),
           lines({{-0.52f, 0.85f}, {0.55f, 0.85f}})}),
    style({curve({{-0.45f, -0.6f},
                  {0, -0.9f},
                  {0.45f, -0.5f},
                  {0.2f, 0.1f},
                  {-0.3f, 0.78f},
                  {-0.52f, 0.68f},
                  {-0.3f, 0.5f},
                  {0.05f, 0.8f},
                  {0.55f, 0.78f}})}),
};
constexpr std::array three{
    style({curve({{-0.45f, -0.7f}, {0, -0.9f}, {0.42f, -0.52f}, {0.2f, -0.15f}, {-0.1f, -0.06f}}),
           curve({{-0.1f, -0.06f}, {0.35f, 0.05f}, {0.5f, 0.45f}, {0.1f, 0.9f}, {-0.48f, 0.68f}})}),
    style({lines({{-0.45f, -0.85f}, {0.42f, -0.85f}, {0, -0.15f}}),
           curve({{0, -0.15f}, {0.45f, 0.12f}, {0.42f, 0.65f}, {0, 0.9f}, {-0.48f, 0.7f}})}),
};
constexpr std::array four{
    style({lines({{-0.25f, -0.88f}, {-0.5f, 0.15f}, {0.52f, 0.15f}}),
           lines({{0.25f, -0.45f}, {0.2f, 0.9f}})}),
    style({lines({{0.2f, 0.9f}, {0.2f, -0.9f}, {-0.55f, 0.3f}, {0.55f, 0.3f}})}),
};
constexpr std::array five{
    style({lines({{0.45f, -0.85f}, {-0.35f, -0.85f}, {-0.42f, -0.1f}}), curve({{-0.42f, -0.1f},
                                                                               {0.1f, -0.22f},
                                                                               {0.5f, 0.2f},
                                                                               {0.32f, 0.75f},
                                                                               {-0.1f, 0.9f},
                                                                               {-0.48f, 0.7f}})}),
    style({curve({{-0.32f, -0.8f},
                  {-0.42f, -0.15f},
                  {0.05f, -0.25f},
                  {0.48f, 0.15f},
                  {0.4f, 0.65f},
                  {0, 0.9f},
                  {-0.45f, 0.75f}}),
           lines({{-0.32f, -0.82f}, {0.48f, -0.86f}})}),
};
constexpr std::array six{
    style({curve({{0.35f, -0.9f},
                  {-0.2f, -0.5f},
                  {-0.47f, 0.2f},
                  {-0.3f, 0.75f},
                  {0.1f, 0.9f},
                  {0.45f, 0.5f},
                  {0.12f, 0.1f},
                  {-0.25f, 0.22f},
                  {-0.42f, 0.5f}})}),
    style({lines({{0.25f, -0.9f}, {-0.38f, 0.3f}}), ellipse(0, 0.45f, 0.44f, 0.44f)}),
};
constexpr std::array seven{
    style({lines({{-0.5f, -0.85f}, {0.5f, -0.85f}, {-0.1f, 0.9f}})}),
    style({lines({{-0.5f, -0.85f}, {0.5f, -0.85f}, {-0.05f, 0.9f}}),
           lines({{-0.25f, 0.05f}, {0.45f, 0.02f}})}),
    style({lines({{-0.5f, -0.8f}, {0.48f, -0.85f}}),
           curve({{0.48f, -0.85f}, {0.12f, -0.15f}, {-0.02f, 0.35f}, {-0.05f, 0.9f}})}),
};
constexpr std::array eight{
    style({ellipse(0, -0.47f, 0.37f, 0.42f), ellipse(0, 0.43f, 0.46f, 0.47f)}),
    style({curve({{0.42f, -0.6f},
                  {0, -0.9f},
                  {-0.4f, -0.55f},
                  {0, -0.05f},
                  {0.45f, 0.45f},
                  {0, 0.9f},
                  {-0.45f, 0.45f},
                  {0, -0.05f},
                  {0.42f, -0.6f}})}),
};
constexpr std::array nine{
    style({ellipse(0, -0.43f, 0.43f, 0.45f), lines({{0.43f, -0.5f}, {0.36f, 0.9f}})}),
    style({ellipse(-0.02f, -0.43f, 0.42f, 0.45f),
           curve({{0.4f, -0.45f}, {0.42f, 0.2f}, {0.15f, 0.82f}, {-0.4f, 0.78f}})}),
};

}  // namespace

std::span<const GlyphStyle> glyph_styles(int digit) {
  switch (digit) {
    case 0:
      return zero;
    case 1:
      return one;
    case 2:
      return two;
    case 3:
      return three;
    case 4:
      return four;
    case 5:
      return five;
    case 6:
      return six;
    case 7:
      return seven;
    case 8:
      return eight;
    case 9:
      return nine;
    default:
      break;
  }
  DTRAIN_CHECK(false, "digit {}", digit);
  return {};
}

}  // namespace dtrain
