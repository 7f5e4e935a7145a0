// Products of small matrices that lie in cache. Highway includes this once per target.

// clang-format off
#if defined(DTRAIN_CORE_OPS_CPU_TILE_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DTRAIN_CORE_OPS_CPU_TILE_PRODUCT_INL_H_
#undef DTRAIN_CORE_OPS_CPU_TILE_PRODUCT_INL_H_
#else
#define DTRAIN_CORE_OPS_CPU_TILE_PRODUCT_INL_H_
#endif
// clang-format on

#include <cstddef>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace dtrain::ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Vectors that divide a multiple of 16 floats.
using TileTag = hn::CappedTag<float, 16>;

// Element (i, p) is at data[i * row + p * column].
struct TileOperand {
  const float* data;
  std::size_t row;
  std::size_t column;
};

// c: [rows][vectors of lanes] (+)= a b, all in registers.
template <int rows, int vectors, bool adds>
HWY_INLINE void register_product(std::size_t inner, TileOperand a, const float* HWY_RESTRICT b,
                                 std::size_t b_stride, float* HWY_RESTRICT c,
                                 std::size_t c_stride) {
  const TileTag d;
  const std::size_t lanes = hn::Lanes(d);
  hn::Vec<TileTag> sums[rows][vectors];
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < vectors; ++j) {
      sums[i][j] = adds ? hn::LoadU(d, c + i * c_stride + j * lanes) : hn::Zero(d);
    }
  }
  const float* HWY_RESTRICT from = a.data;
  for (std::size_t p = 0; p < inner; ++p, from += a.column, b += b_stride) {
    hn::Vec<TileTag> of_b[vectors];
    for (int j = 0; j < vectors; ++j) of_b[j] = hn::LoadU(d, b + j * lanes);
    for (int i = 0; i < rows; ++i) {
      const auto of_a = hn::Set(d, from[i * a.row]);
      for (int j = 0; j < vectors; ++j) sums[i][j] = hn::MulAdd(of_a, of_b[j], sums[i][j]);
    }
  }
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < vectors; ++j) hn::StoreU(sums[i][j], d, c + i * c_stride + j * lanes);
  }
}

// As many sums as registers hold beside the operands: 32 registers with AVX-512, else 16.
inline constexpr int product_rows = 6;
inline constexpr int product_vectors = HWY_TARGET <= HWY_AVX3 ? 4 : 2;

template <int vectors, bool adds>
HWY_INLINE void product_columns(std::size_t rows, std::size_t inner, TileOperand a, const float* b,
                                std::size_t b_stride, float* c, std::size_t c_stride) {
  std::size_t i = 0;
  for (; i + product_rows <= rows; i += product_rows) {
    register_product<product_rows, vectors, adds>(inner, {a.data + i * a.row, a.row, a.column}, b,
                                                  b_stride, c + i * c_stride, c_stride);
  }
  const TileOperand rest{a.data + i * a.row, a.row, a.column};
  float* to = c + i * c_stride;
  switch (rows - i) {
    case 5:
      register_product<5, vectors, adds>(inner, rest, b, b_stride, to, c_stride);
      break;
    case 4:
      register_product<4, vectors, adds>(inner, rest, b, b_stride, to, c_stride);
      break;
    case 3:
      register_product<3, vectors, adds>(inner, rest, b, b_stride, to, c_stride);
      break;
    case 2:
      register_product<2, vectors, adds>(inner, rest, b, b_stride, to, c_stride);
      break;
    case 1:
      register_product<1, vectors, adds>(inner, rest, b, b_stride, to, c_stride);
      break;
    default:
      break;
  }
}

// c: [rows][columns] (+)= a: [rows][inner] times b: [inner][columns]; columns a multiple of 16.
template <bool adds>
void tile_product(std::size_t rows, std::size_t columns, std::size_t inner, TileOperand a,
                  const float* b, std::size_t b_stride, float* c, std::size_t c_stride) {
  const std::size_t lanes = hn::Lanes(TileTag());
  std::size_t j = 0;
  for (; j + product_vectors * lanes <= columns; j += product_vectors * lanes) {
    product_columns<product_vectors, adds>(rows, inner, a, b + j, b_stride, c + j, c_stride);
  }
  for (; j < columns; j += lanes) {
    product_columns<1, adds>(rows, inner, a, b + j, b_stride, c + j, c_stride);
  }
}

}  // namespace dtrain::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // DTRAIN_CORE_OPS_CPU_TILE_PRODUCT_INL_H_
