#include "machine_peak.h"

#include <algorithm>
#include <thread>

#include <hwy/cache_control.h>

#include "dtrain/core/base/clock.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "machine_peak.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace dtrain::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Independent sums, enough to fill the pipelines of two units. Returns the operations made;
// `result` keeps the compiler from leaving them out.
double multiply_add_kernel(std::size_t rounds, float* result) {
  const hn::ScalableTag<float> d;
  const auto factor = hn::Set(d, 0.999999F);
  const auto term = hn::Set(d, 1e-6F);
  // Different starts: equal sums would be computed once.
  auto a0 = hn::Iota(d, 0), a1 = hn::Iota(d, 1), a2 = hn::Iota(d, 2), a3 = hn::Iota(d, 3);
  auto a4 = hn::Iota(d, 4), a5 = hn::Iota(d, 5), a6 = hn::Iota(d, 6), a7 = hn::Iota(d, 7);
  auto b0 = hn::Iota(d, 8), b1 = hn::Iota(d, 9), b2 = hn::Iota(d, 10), b3 = hn::Iota(d, 11);
  for (std::size_t i = 0; i < rounds; ++i) {
    a0 = hn::MulAdd(a0, factor, term);
    a1 = hn::MulAdd(a1, factor, term);
    a2 = hn::MulAdd(a2, factor, term);
    a3 = hn::MulAdd(a3, factor, term);
    a4 = hn::MulAdd(a4, factor, term);
    a5 = hn::MulAdd(a5, factor, term);
    a6 = hn::MulAdd(a6, factor, term);
    a7 = hn::MulAdd(a7, factor, term);
    b0 = hn::MulAdd(b0, factor, term);
    b1 = hn::MulAdd(b1, factor, term);
    b2 = hn::MulAdd(b2, factor, term);
    b3 = hn::MulAdd(b3, factor, term);
  }
  const auto a =
      hn::Add(hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)), hn::Add(hn::Add(a4, a5), hn::Add(a6, a7)));
  *result = hn::GetLane(hn::SumOfLanes(d, hn::Add(a, hn::Add(hn::Add(b0, b1), hn::Add(b2, b3)))));
  return static_cast<double>(rounds) * 12 * 2 * static_cast<double>(hn::Lanes(d));
}

void traffic_kernel(std::size_t begin, std::size_t end, const float* const* reads,
                    std::size_t read_count, float* const* writes, std::size_t write_count,
                    bool nontemporal, float* result) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  auto total = hn::Zero(d);
  for (std::size_t i = begin; i < end; i += lanes) {
    auto sum = hn::Zero(d);
    for (std::size_t k = 0; k < read_count; ++k) sum = hn::Add(sum, hn::LoadU(d, reads[k] + i));
    for (std::size_t k = 0; k < write_count; ++k) {
      if (nontemporal) {
        hn::Stream(sum, d, writes[k] + i);
      } else {
        hn::StoreU(sum, d, writes[k] + i);
      }
    }
    total = hn::Add(total, sum);
  }
  if (nontemporal) hwy::FlushStream();
  *result = hn::GetLane(hn::SumOfLanes(d, total));
}

}  // namespace dtrain::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dtrain {

HWY_EXPORT(multiply_add_kernel);
HWY_EXPORT(traffic_kernel);

double measure_peak_gflops(int threads) {
  // The median of short bursts: a burst that a neighbour disturbs says nothing of the machine.
  const auto measure = [](double* gflops) {
    std::vector<double> rates;
    volatile float kept = 0;
    for (int burst = 0; burst < 21; ++burst) {
      const TimePoint start = Clock::now();
      float result = 0;
      const double operations = HWY_DYNAMIC_DISPATCH(multiply_add_kernel)(1'000'000, &result);
      rates.push_back(operations / seconds_since(start) * 1e-9);
      kept = result;
    }
    static_cast<void>(kept);
    std::ranges::nth_element(rates, rates.begin() + 10);
    *gflops = rates[10];
  };
  std::vector<double> rates(static_cast<std::size_t>(threads));
  {
    std::vector<std::jthread> workers;
    for (double& rate : rates) workers.emplace_back(measure, &rate);
  }
  double sum = 0;
  for (const double rate : rates) sum += rate;
  return sum;
}

Traffic::Traffic(std::vector<std::span<const float>> reads, std::vector<std::span<float>> writes,
                 bool nontemporal)
    : reads_(std::move(reads)), writes_(std::move(writes)), nontemporal_(nontemporal) {}

std::size_t Traffic::elements() const {
  return reads_.empty() ? writes_.front().size() : reads_.front().size();
}

void Traffic::run(std::size_t begin, std::size_t end) const {
  std::vector<const float*> reads;
  std::vector<float*> writes;
  for (const auto& array : reads_) reads.push_back(array.data());
  for (const auto& array : writes_) writes.push_back(array.data());
  float result = 0;
  HWY_DYNAMIC_DISPATCH(traffic_kernel)
  (begin, end, reads.data(), reads.size(), writes.data(), writes.size(), nontemporal_, &result);
  volatile float kept = result;
  static_cast<void>(kept);
}

}  // namespace dtrain
#endif
