#include "dtrain/data/glyphs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "dtrain/core/base/error.h"
#include "dtrain/core/base/hash.h"
#include "dtrain/data/glyph_shapes.h"

namespace dtrain {

namespace {

constexpr int side = Glyphs::side;
constexpr int pixels = side * side;
constexpr float centre = (side - 1) / 2.0f;

// How far samples differ. Chosen so that a linear model stays below 93% validation accuracy and a
// small convolutional network passes 98.5% after one epoch of 60,000.
constexpr float turn = 0.11f;      // largest tangent of half the rotation
constexpr float shear = 0.25f;     // largest
constexpr float min_scale = 7.5f;  // pixels of a unit
constexpr float max_scale = 11.0f;
constexpr float max_stretch = 0.15f;    // of x against y
constexpr float shift = 2.5f;           // largest, pixels
constexpr float point_jitter = 0.07f;   // of each point of a stroke, largest
constexpr float stroke_jitter = 0.05f;  // of a stroke as a whole, largest
constexpr float wobble = 0.06f;         // of space, largest
constexpr float min_radius = 0.7f;      // of the pen, pixels
constexpr float max_radius = 1.6f;
constexpr float softness = 0.6f;  // half the width of a stroke's rim, pixels
constexpr float min_ink = 0.65f;
constexpr float max_background = 0.15f;
constexpr float noise = 0.2f;           // width of the uniform noise of a pixel
constexpr int max_clutter = 2;          // stray lines
constexpr float clutter_length = 4.0f;  // largest, pixels
constexpr int curve_steps = 4;          // straight pieces between two points of a curve

class Random {
 public:
  Random(RandomKey key, std::uint64_t stream) : sequence_(key, stream) {}
  // In [-width, width).
  float around(float width) { return (2 * sequence_.uniform() - 1) * width; }
  float between(float low, float high) { return low + (high - low) * sequence_.uniform(); }
  int below(int n) {
    return static_cast<int>(std::uint64_t{sequence_.next_u32()} * static_cast<unsigned>(n) >> 32);
  }

 private:
  RandomSequence sequence_;
};

// A wave of period 1 and height 1 like the sine, made of two parabolas.
float wave(float x) {
  const float y = 2 * (x - std::floor(x)) - 1;
  return -4 * y * (1 - std::abs(y));
}

// Ink on paper: the largest coverage that a stroke leaves at each pixel.
class Canvas {
 public:
  // Coordinates and radius in pixels; ink in [0, 1].
  void line(GlyphPoint a, GlyphPoint b, float radius, float ink) {
    const float reach = radius + softness;
    const int x0 = std::max(static_cast<int>(std::ceil(std::min(a.x, b.x) - reach)), 0);
    const int x1 = std::min(static_cast<int>(std::floor(std::max(a.x, b.x) + reach)), side - 1);
    const int y0 = std::max(static_cast<int>(std::ceil(std::min(a.y, b.y) - reach)), 0);
    const int y1 = std::min(static_cast<int>(std::floor(std::max(a.y, b.y) + reach)), side - 1);
    const float dx = b.x - a.x;
    const float dy = b.y - a.y;
    const float length = dx * dx + dy * dy;
    const float per_length = length > 0 ? 1 / length : 0.0f;
    // Coverage falls from 1 at radius - softness to 0 at the reach, linearly in the square of the
    // distance, which spares a root per pixel.
    const float inner = std::max(radius - softness, 0.0f);
    const float slope = ink / (reach * reach - inner * inner);
    for (int y = y0; y <= y1; ++y) {
      const float py = static_cast<float>(y) - a.y;
      for (int x = x0; x <= x1; ++x) {
        const float px = static_cast<float>(x) - a.x;
        const float along = std::min(std::max((px * dx + py * dy) * per_length, 0.0f), 1.0f);
        const float ex = px - along * dx;
        const float ey = py - along * dy;
        const float cover = std::min((reach * reach - (ex * ex + ey * ey)) * slope, ink);
        float& pixel = cover_[static_cast<std::size_t>(y * side + x)];
        pixel = std::max(pixel, cover);
      }
    }
  }
  const std::array<float, pixels>& cover() const { return cover_; }

 private:
  std::array<float, pixels> cover_{};
};

// The random change of shape of one sample: of the plane, and from there to pixels.
class Distortion {
 public:
  explicit Distortion(Random& random) {
    // Rotation without sine and cosine, whose last bits differ between libraries: from the tangent
    // of half the angle.
    const float t = random.around(turn);
    const float cosine = (1 - t * t) / (1 + t * t);
    const float sine = 2 * t / (1 + t * t);
    const float slant = random.around(shear);
    const float scale = random.between(min_scale, max_scale);
    const float scale_x = scale * (1 + random.around(max_stretch));
    xx_ = cosine * scale_x;
    xy_ = (cosine * slant - sine) * scale;
    yx_ = sine * scale_x;
    yy_ = (sine * slant + cosine) * scale;
    x_ = centre + random.around(shift);
    y_ = centre + random.around(shift);
    wobble_x_ = random.around(wobble);
    wobble_y_ = random.around(wobble);
    phase_x_ = random.between(0, 1);
    phase_y_ = random.between(0, 1);
    frequency_x_ = random.between(0.4f, 0.9f);
    frequency_y_ = random.between(0.4f, 0.9f);
  }

  GlyphPoint to_pixels(GlyphPoint p) const {
    const float x = p.x + wobble_x_ * wave(p.y * frequency_x_ + phase_x_);
    const float y = p.y + wobble_y_ * wave(p.x * frequency_y_ + phase_y_);
    return {x_ + xx_ * x + xy_ * y, y_ + yx_ * x + yy_ * y};
  }

 private:
  float xx_, xy_, yx_, yy_, x_, y_;
  float wobble_x_, wobble_y_, phase_x_, phase_y_, frequency_x_, frequency_y_;
};

// A point of the Catmull-Rom spline between b and c, at t in [0, 1].
GlyphPoint spline(GlyphPoint a, GlyphPoint b, GlyphPoint c, GlyphPoint d, float t) {
  const auto axis = [t](float a, float b, float c, float d) {
    return b + 0.5f * t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)));
  };
  return {axis(a.x, b.x, c.x, d.x), axis(a.y, b.y, c.y, d.y)};
}

void draw(const GlyphStroke& stroke, const Distortion& distortion, float radius, float ink,
          Random& random, Canvas& canvas) {
  const int n = stroke.count;
  std::array<GlyphPoint, GlyphStroke::max_points> points = stroke.points;
  const float move_x = random.around(stroke_jitter);
  const float move_y = random.around(stroke_jitter);
  for (int i = 0; i < n; ++i) {
    points[static_cast<std::size_t>(i)].x += move_x + random.around(point_jitter);
    points[static_cast<std::size_t>(i)].y += move_y + random.around(point_jitter);
  }
  const GlyphPoint& first = stroke.points[0];
  const GlyphPoint& last = stroke.points[static_cast<std::size_t>(n - 1)];
  const bool closed = stroke.bent && first.x == last.x && first.y == last.y;
  // A closed stroke goes on behind its last point with its second one; an open one stands still.
  const auto at = [&](int i) {
    if (closed) i = (i + n - 1) % (n - 1);
    return points[static_cast<std::size_t>(std::clamp(i, 0, n - 1))];
  };
  GlyphPoint from = distortion.to_pixels(at(0));
  for (int i = 0; i + 1 < n; ++i) {
    // Straight lines are cut too, for the wobble bends them.
    for (int step = 1; step <= curve_steps; ++step) {
      const float t = static_cast<float>(step) / curve_steps;
      const GlyphPoint b = at(i);
      const GlyphPoint c = at(i + 1);
      const GlyphPoint p = stroke.bent ? spline(at(i - 1), b, c, at(i + 2), t)
                                       : GlyphPoint{b.x + (c.x - b.x) * t, b.y + (c.y - b.y) * t};
      const GlyphPoint to = distortion.to_pixels(p);
      canvas.line(from, to, radius, ink);
      from = to;
    }
  }
}

void draw_clutter(Random& random, Canvas& canvas) {
  const int count = random.below(max_clutter + 1);
  for (int i = 0; i < count; ++i) {
    const GlyphPoint a{random.between(0, side - 1), random.between(0, side - 1)};
    const GlyphPoint b{a.x + random.around(clutter_length), a.y + random.around(clutter_length)};
    // Drawn one by one: compilers differ in which argument of a call they evaluate first.
    const float ink = random.between(0.3f, 0.8f);
    const float radius = random.between(0.4f, 1.0f);
    canvas.line(a, b, radius, ink);
  }
}

}  // namespace

Glyphs::Glyphs(std::uint64_t seed) : seed_(seed), key_(RandomKey(seed).fork(RandomPurpose::glyph)) {
  spec_.input = {DType::f32, Shape{side, side, 1}};
  spec_.target = {DType::i64, Shape{}};
  spec_.classes = 10;
}

void Glyphs::read(std::int64_t index, std::span<std::byte> input,
                  std::span<std::byte> target) const {
  Random random(key_, static_cast<std::uint64_t>(index));
  const int digit = random.below(10);
  const std::span<const GlyphStyle> styles = glyph_styles(digit);
  const GlyphStyle& style =
      styles[static_cast<std::size_t>(random.below(static_cast<int>(styles.size())))];
  const Distortion distortion(random);
  const float radius = random.between(min_radius, max_radius);
  Canvas canvas;
  for (int i = 0; i < style.count; ++i) {
    draw(style.strokes[static_cast<std::size_t>(i)], distortion, radius, 1, random, canvas);
  }
  draw_clutter(random, canvas);

  const float background = random.between(0, max_background);
  const float ink = random.between(min_ink, 1) - background;
  const RandomKey noise_key = key_.fork(1);
  std::array<float, pixels> image;
  for (std::size_t block = 0; block < pixels / 8; ++block) {
    // Sixteen random bits a pixel.
    const auto words = noise_key.block(static_cast<std::uint64_t>(index), block);
    for (std::size_t k = 0; k < 8; ++k) {
      const std::size_t pixel = block * 8 + k;
      const auto bits = static_cast<float>(words[k / 2] >> (k % 2 * 16) & 0xFFFF);
      const float value =
          background + ink * canvas.cover()[pixel] + noise * (bits * 0x1p-16f - 0.5f);
      image[pixel] = std::min(std::max(value, 0.0f), 1.0f);
    }
  }
  static_assert(pixels % 8 == 0);
  std::memcpy(input.data(), image.data(), sizeof image);
  const std::int64_t label = digit;
  std::memcpy(target.data(), &label, sizeof label);
}

std::string Glyphs::origin(std::int64_t index) const {
  return fmt::format("glyph {} of seed {}", index, seed_);
}

std::string Glyphs::identity() const {
  Hasher hasher;
  // The drawing itself is part of the identity: a version that draws otherwise differs.
  std::vector<std::byte> input(spec_.input.bytes());
  std::vector<std::byte> target(spec_.target.bytes());
  hasher.add("glyphs");
  hasher.add(seed_);
  for (std::int64_t i = 0; i < 16; ++i) {
    read(i, input, target);
    hasher.add(input);
    hasher.add(target);
  }
  return hasher.hex();
}

}  // namespace dtrain
