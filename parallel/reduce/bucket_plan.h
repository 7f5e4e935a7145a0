// Which parameters' gradients travel together.
//
// A bucket is a slice of the gradient arena, so it is summed without a copy. Parameters are taken
// in arena order (the order in which backward finishes them): a small first bucket, so that
// communication starts early, then buckets of about the given size. A bucket ends behind the
// parameter with which it reaches its size: a large parameter is never cut. The sums of running
// statistics ride in the last bucket. The plan is a pure function of its arguments, so all ranks
// have the same.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dtrain/core/nn/arena.h"

namespace dtrain {

struct Bucket {
  std::int64_t first = 0;       // elements from the start of the gradient arena
  std::int64_t last = 0;        // exclusive
  std::vector<int> parameters;  // indices in arena order
};

struct BucketPlan {
  std::vector<Bucket> buckets;  // adjacent, covering the gradient arena
  // Digest of borders and parameters.
  std::string digest() const;
};

// bucket_bytes: the size at which a bucket ends; the first one ends at 1 MiB, if that is less.
BucketPlan make_bucket_plan(const ArenaLayout& layout, std::int64_t bucket_bytes);

// "bucket 2: 24.8 MiB, conv2.weight .. fc1.bias (6 parameters)", one line each.
std::string to_string(const BucketPlan& plan, const ArenaLayout& layout);

}  // namespace dtrain
