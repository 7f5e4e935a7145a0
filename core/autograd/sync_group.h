// Passes of all virtual ranks that exchange numbers while they run, for layers whose result depends
// on the whole batch (SyncBN).
#pragma once

#include <span>

namespace dtrain {

// One virtual rank's end. All virtual ranks call in the same order with as many numbers, those
// whose micro-batch is empty too.
class SyncGroup {
 public:
  virtual ~SyncGroup() = default;
  virtual int size() const = 0;  // virtual ranks of the recipe
  // Hands in this pass's numbers and returns everyone's, size() * values.size() of them, in the
  // order of virtual ranks; they are valid until the next call. Blocks until all have come. Throws
  // what ended the group (CommError).
  virtual std::span<const double> exchange(std::span<const double> values) = 0;
};

}  // namespace dtrain
