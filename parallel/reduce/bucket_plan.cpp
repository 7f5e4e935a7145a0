#include "dtrain/parallel/reduce/bucket_plan.h"

#include <algorithm>

#include "dtrain/core/base/hash.h"

namespace dtrain {

namespace {

// Communication starts as soon as the first bucket is full, so that one is small.
constexpr std::int64_t first_bucket_bytes = 1 << 20;

}  // namespace

BucketPlan make_bucket_plan(const ArenaLayout& layout, std::int64_t bucket_bytes) {
  BucketPlan plan;
  Bucket bucket;
  const auto close = [&](std::int64_t end) {
    bucket.last = end;
    plan.buckets.push_back(std::move(bucket));
    bucket = Bucket{end, end, {}};
  };
  const auto parameters = layout.parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    bucket.parameters.push_back(static_cast<int>(i));
    const std::int64_t end =
        i + 1 < parameters.size() ? parameters[i + 1]->offset : layout.weight_elements();
    const std::int64_t limit =
        plan.buckets.empty() ? std::min(first_bucket_bytes, bucket_bytes) : bucket_bytes;
    const std::int64_t bytes = (end - bucket.first) * static_cast<std::int64_t>(sizeof(float));
    if (bytes >= limit && i + 1 < parameters.size()) close(end);
  }
  close(layout.gradient_elements());
  return plan;
}

std::string BucketPlan::digest() const {
  Hasher hasher;
  for (const Bucket& bucket : buckets) {
    hasher.add(bucket.first);
    hasher.add(bucket.last);
    for (const int parameter : bucket.parameters) hasher.add(parameter);
  }
  return hasher.hex();
}

std::string to_string(const BucketPlan& plan, const ArenaLayout& layout) {
  std::string text;
  for (std::size_t i = 0; i < plan.buckets.size(); ++i) {
    const Bucket& bucket = plan.buckets[i];
    const auto name = [&](int parameter) { return layout.parameters()[parameter]->name; };
    text += fmt::format("bucket {}: {:.2f} MiB, {} .. {} ({} parameters)\n", i,
                        static_cast<double>(bucket.last - bucket.first) * sizeof(float) / (1 << 20),
                        name(bucket.parameters.front()), name(bucket.parameters.back()),
                        bucket.parameters.size());
  }
  return text;
}

}  // namespace dtrain
