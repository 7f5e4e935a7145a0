// The strokes of the ten digits, in the styles in which people write them.
//
// Coordinates: x to the right, y down, a digit fills about [-0.5, 0.5] x [-0.9, 0.9].
#pragma once

#include <array>
#include <span>

namespace dtrain {

struct GlyphPoint {
  float x = 0;
  float y = 0;
};

// A line through points: bent smoothly, or straight from one to the next. A bent stroke that ends
// where it began is closed.
struct GlyphStroke {
  static constexpr int max_points = 9;
  bool bent = false;
  int count = 0;
  std::array<GlyphPoint, max_points> points{};
};

struct GlyphStyle {
  static constexpr int max_strokes = 3;
  int count = 0;
  std::array<GlyphStroke, max_strokes> strokes{};
};

// digit: 0 to 9.
std::span<const GlyphStyle> glyph_styles(int digit);

}  // namespace dtrain
