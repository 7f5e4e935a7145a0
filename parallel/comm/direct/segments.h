// How the ranks of a group get memory that all of them can reach: the one thing that differs
// between threads and processes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace dtrain {

// Mapped memory; the last copy gives it back.
struct Segment {
  std::span<std::byte> bytes;
  std::shared_ptr<void> owner;
};

class SegmentSource {
 public:
  virtual ~SegmentSource() = default;

  // Reserves zeroed memory and offers it to the other ranks as number `id`. Throws DeviceError.
  virtual Segment create(std::uint64_t id, std::size_t bytes) = 0;
  // Memory number `id` of another rank, which has created it. Throws CommError.
  virtual Segment open(std::uint64_t id, int rank, std::size_t bytes) = 0;
  // All ranks have opened this rank's memory `id`: nobody needs to find it any more.
  virtual void retire(std::uint64_t id) = 0;

  // Whether the process of another rank has ended, where that can be known.
  virtual bool died(int rank) = 0;

  // "shm".
  virtual std::string transport() const = 0;
};

// Zeroed private memory of whole pages, backed by the system at once. Throws DeviceError.
Segment make_anonymous_segment(std::size_t bytes);

}  // namespace dtrain
