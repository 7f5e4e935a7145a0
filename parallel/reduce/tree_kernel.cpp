#include "dtrain/parallel/reduce/tree_kernel.h"

#include <algorithm>
#include <cstdint>

#include "dtrain/core/base/error.h"

// Highway compiles what follows once per instruction set and chooses at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dtrain/parallel/reduce/tree_kernel.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace dtrain::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::ScalableTag<float>;

// Sum of one vector of each operand, pairwise.
template <int kOperands>
HWY_INLINE hn::Vec<Tag> sum_at(Tag d, const float* const* in, std::size_t i) {
  if constexpr (kOperands == 1) {
    return hn::LoadU(d, in[0] + i);
  } else if constexpr (kOperands == 2) {
    return hn::Add(hn::LoadU(d, in[0] + i), hn::LoadU(d, in[1] + i));
  } else {
    return hn::Add(hn::Add(hn::LoadU(d, in[0] + i), hn::LoadU(d, in[1] + i)),
                   hn::Add(hn::LoadU(d, in[2] + i), hn::LoadU(d, in[3] + i)));
  }
}

template <int kOperands>
HWY_INLINE float scalar_sum_at(const float* const* in, std::size_t i) {
  if constexpr (kOperands == 1) {
    return in[0][i];
  } else if constexpr (kOperands == 2) {
    return in[0][i] + in[1][i];
  } else {
    return (in[0][i] + in[1][i]) + (in[2][i] + in[3][i]);
  }
}

// kOutputs 0 stands for any number.
template <int kOperands, int kOutputs, bool kStream>
void emit(const float* const* in, float* const* out, std::size_t any_outputs, std::size_t count) {
  const Tag d;
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t outputs = kOutputs > 0 ? kOutputs : any_outputs;
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto sum = sum_at<kOperands>(d, in, i);
    for (std::size_t j = 0; j < outputs; ++j) {
      if constexpr (kStream) {
        hn::Stream(sum, d, out[j] + i);
      } else {
        hn::StoreU(sum, d, out[j] + i);
      }
    }
  }
  for (; i < count; ++i) {
    const float sum = scalar_sum_at<kOperands>(in, i);
    for (std::size_t j = 0; j < outputs; ++j) out[j][i] = sum;
  }
}

template <int kOperands, bool kStream>
void emit_to(const float* const* in, float* const* out, std::size_t outputs, std::size_t count) {
  switch (outputs) {
    case 1:
      return emit<kOperands, 1, kStream>(in, out, outputs, count);
    case 2:
      return emit<kOperands, 2, kStream>(in, out, outputs, count);
    case 4:
      return emit<kOperands, 4, kStream>(in, out, outputs, count);
    default:
      return emit<kOperands, 0, kStream>(in, out, outputs, count);
  }
}

void emit_sums(const float* const* in, std::size_t operands, float* const* out, std::size_t outputs,
               std::size_t count, bool stream) {
  if (stream) {
    if (operands == 1) return emit_to<1, true>(in, out, outputs, count);
    if (operands == 2) return emit_to<2, true>(in, out, outputs, count);
    return emit_to<4, true>(in, out, outputs, count);
  }
  if (operands == 1) return emit_to<1, false>(in, out, outputs, count);
  if (operands == 2) return emit_to<2, false>(in, out, outputs, count);
  return emit_to<4, false>(in, out, outputs, count);
}

}  // namespace dtrain::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace dtrain {

HWY_EXPORT(emit_sums);

namespace {

constexpr std::size_t block_floats = 1024;
constexpr std::size_t line_bytes = 64;

// Floats before the first 64-byte border that all outputs share; `count` if there is none.
std::size_t floats_to_border(std::span<float* const> outputs, std::size_t count) {
  const auto offset = [](const float* p) {
    return reinterpret_cast<std::uintptr_t>(p) % line_bytes;
  };
  for (const float* output : outputs) {
    if (offset(output) != offset(outputs[0])) return count;
  }
  return std::min(count, (line_bytes - offset(outputs[0])) % line_bytes / sizeof(float));
}

}  // namespace

TreeKernel::TreeKernel(int inputs, const std::vector<Addition>& additions) : inputs_(inputs) {
  DTRAIN_CHECK(inputs >= 1 && additions.size() + 1 == static_cast<std::size_t>(inputs),
               "{} inputs, {} additions", inputs, additions.size());
  std::vector<int> value(static_cast<std::size_t>(inputs));  // [slot] the operand that it holds
  for (int i = 0; i < inputs; ++i) value[static_cast<std::size_t>(i)] = i;
  std::vector<bool> live(value.size(), true);
  std::vector<bool> used;  // [scratch block]
  const auto release = [&](int operand) {
    if (operand < 0) used[static_cast<std::size_t>(-1 - operand)] = false;
  };
  for (const Addition& addition : additions) {
    DTRAIN_CHECK(addition.into >= 0 && addition.into < inputs && addition.from >= 0 &&
                     addition.from < inputs && addition.into != addition.from,
                 "slot {} += slot {} of {}", addition.into, addition.from, inputs);
    const auto into = static_cast<std::size_t>(addition.into);
    const auto from = static_cast<std::size_t>(addition.from);
    DTRAIN_CHECK(live[into] && live[from], "slot {} += slot {} after one was used up", into, from);
    live[from] = false;
    release(value[into]);
    release(value[from]);
    const auto free = std::find(used.begin(), used.end(), false);
    const int block = static_cast<int>(free - used.begin());
    if (free == used.end()) used.push_back(false);
    used[static_cast<std::size_t>(block)] = true;
    steps_.push_back({value[into], value[from], block});
    value[into] = -1 - block;
  }
  DTRAIN_CHECK(live[0], "the sum of {} inputs does not end in slot 0", inputs);
  scratch_blocks_ = static_cast<int>(used.size());

  // The last addition goes straight to the outputs, and with it the two before it where both of
  // its operands are sums of two: so pairs and quads need no scratch memory at all.
  last_ = {0};
  if (inputs == 1) return;
  const Step root = steps_.back();
  steps_.pop_back();
  last_ = {root.left, root.right};
  if (inputs == 4 && root.left < 0 && root.right < 0) {
    const Step left = steps_[0].into == -1 - root.left ? steps_[0] : steps_[1];
    const Step right = steps_[0].into == -1 - root.left ? steps_[1] : steps_[0];
    last_ = {left.left, left.right, right.left, right.right};
    steps_.clear();
    scratch_blocks_ = 0;
  }
}

void TreeKernel::run(std::span<const float* const> inputs, std::span<float* const> outputs,
                     std::size_t count, Writes writes) const {
  DTRAIN_CHECK(inputs.size() == static_cast<std::size_t>(inputs_) && !outputs.empty(),
               "{} inputs for a sum of {}, {} outputs", inputs.size(), inputs_, outputs.size());
  const auto emit_sums = HWY_DYNAMIC_DISPATCH(emit_sums);
  std::vector<float> scratch(static_cast<std::size_t>(scratch_blocks_) * block_floats);
  std::vector<float*> out(outputs.size());
  const float* operands[4];

  const auto sum = [&](std::size_t first, std::size_t n, bool stream) {
    const auto operand = [&](int i) -> const float* {
      return i >= 0 ? inputs[static_cast<std::size_t>(i)] + first
                    : scratch.data() + static_cast<std::size_t>(-1 - i) * block_floats;
    };
    for (const Step& step : steps_) {
      operands[0] = operand(step.left);
      operands[1] = operand(step.right);
      float* into = scratch.data() + static_cast<std::size_t>(step.into) * block_floats;
      emit_sums(operands, 2, &into, 1, n, false);
    }
    for (std::size_t i = 0; i < last_.size(); ++i) operands[i] = operand(last_[i]);
    for (std::size_t j = 0; j < out.size(); ++j) out[j] = outputs[j] + first;
    emit_sums(operands, last_.size(), out.data(), out.size(), n, stream);
  };

  const bool stream = writes == Writes::streaming;
  // Streaming stores want whole aligned vectors: up to the border, and throughout where the
  // outputs lie differently, results are written the usual way.
  const std::size_t head = stream ? floats_to_border(outputs, count) : 0;
  for (std::size_t i = 0; i < head; i += block_floats) {
    sum(i, std::min(block_floats, head - i), false);
  }
  const std::size_t step = steps_.empty() && count > head ? count - head : block_floats;
  for (std::size_t i = head; i < count; i += step) {
    sum(i, std::min(step, count - i), stream);
  }
  // Streaming stores are weakly ordered: they must be out before anyone is told.
  if (stream) hwy::FlushStream();
}

}  // namespace dtrain

#endif  // HWY_ONCE
