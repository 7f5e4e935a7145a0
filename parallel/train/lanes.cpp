#include "dtrain/parallel/train/lanes.h"

#include <algorithm>

#include <fmt/format.h>

#include "dtrain/parallel/comm/direct/available_memory.h"

namespace dtrain {

// The kernel would not refuse memory that is not there, but kill for it later: an allocator that
// knows how much there is can say who asked for too much.
Lanes::Lane::Lane(int index, int threads, Convolution convolution)
    : allocator(fmt::format("lane {}", index), available_memory().bytes),
      context(allocator, threads, convolution) {}

Lanes::Lanes(int lanes, int cores, int threads, Convolution convolution)
    : pool_(std::max(lanes, cores)) {
  for (int i = 0; i < lanes; ++i) lanes_.push_back(std::make_unique<Lane>(i, threads, convolution));
}

void Lanes::run(int count, const std::function<void(int, OpContext&)>& body) {
  pool_.parallel_for(count, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t lane = first; lane < last; ++lane) {
      OpContext& context = lanes_[lane]->context;
      context.bind_to_this_thread();  // Note [Threads of an operator]
      body(static_cast<int>(lane), context);
    }
  });
}

void Lanes::begin_step_with_cached_weights() {
  weights_.begin_step();
  for (const auto& lane : lanes_) use_weight_cache(lane->context, &weights_);
}

void Lanes::end_step_with_cached_weights() {
  for (const auto& lane : lanes_) use_weight_cache(lane->context, nullptr);
}

void Lanes::release_cached() {
  for (const auto& lane : lanes_) lane->allocator.release_cached();
}

std::uint64_t Lanes::peak_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& lane : lanes_) bytes += lane->allocator.stats().peak_allocated;
  return bytes;
}

}  // namespace dtrain
