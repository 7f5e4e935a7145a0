// Memory of a device. The caching allocator keeps what is freed, so that a warm training step asks
// the system for nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace dtrain {

struct AllocatorStats {
  std::uint64_t allocated = 0;       // bytes in use by tensors, rounded up to 64
  std::uint64_t reserved = 0;        // bytes taken from the system, in use or cached
  std::uint64_t peak_allocated = 0;  // since the start or reset_peak()
  std::uint64_t peak_reserved = 0;
  std::uint64_t system_calls = 0;  // times that the system was asked for memory
};

class AllocatorPool;

// Owns one block and gives it back to its allocator, from any thread. Empty if default-made.
class MemoryBlock {
 public:
  MemoryBlock() = default;
  MemoryBlock(std::shared_ptr<AllocatorPool> pool, void* data, std::size_t bytes);
  MemoryBlock(MemoryBlock&& other) noexcept;
  MemoryBlock& operator=(MemoryBlock&& other) noexcept;
  ~MemoryBlock();
  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<AllocatorPool> pool_;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// A caching allocator. Thread-safe; blocks may outlive it. Addresses are multiples of 64 bytes.
class Allocator {
 public:
  // `limit`: bytes that it may reserve; 0 takes what the system gives.
  explicit Allocator(std::string name, std::uint64_t limit = 0);

  // `bytes` may be 0. `who` names the asker in the error ("conv1 output"). Throws DeviceError that
  // names what was asked for, by whom, what is in use, the limit and what to change.
  MemoryBlock allocate(std::size_t bytes, std::string_view who);

  AllocatorStats stats() const;
  void reset_peak();
  // Gives cached blocks back to the system.
  void release_cached();

 private:
  std::shared_ptr<AllocatorPool> pool_;
};

}  // namespace dtrain
