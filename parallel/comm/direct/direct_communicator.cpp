#include "dtrain/parallel/comm/direct/direct_communicator.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include <fmt/format.h>

#include "dtrain/core/base/error.h"
#include "dtrain/parallel/comm/direct/available_memory.h"

namespace dtrain {

namespace {

// Sums of at most so many bytes in all take one meeting. Measured on two ranks: a second meeting
// costs less than the copies from 1 KiB on, but where ranks share processors every meeting is a
// change of context.
constexpr std::size_t small_sum_bytes = 1 << 10;
constexpr std::size_t small_sum_bytes_shared = 64 << 10;

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15 + (hash << 6) + (hash >> 2);
  return hash * 0xff51afd7ed558ccd;
}

std::uint64_t hash_of(const TreeSum& sum) {
  std::uint64_t hash = mix(static_cast<std::uint64_t>(sum.tree.virtual_ranks()), sum.result);
  for (const auto& partials : sum.partials) {
    hash = mix(hash, partials.size());
    for (const Partial& p : partials) {
      hash = mix(hash, static_cast<std::uint64_t>(p.node.height));
      hash = mix(hash, static_cast<std::uint64_t>(p.node.index));
      hash = mix(hash, p.offset);
    }
  }
  return hash;
}

// Where rank r's part of `bytes` begins, on a border of cache lines, or of pages for large parts,
// counted from the address so that no two ranks write to one line.
std::size_t part_border(std::size_t bytes, std::size_t address, int rank, int ranks) {
  if (rank == ranks) return bytes;
  const std::size_t even = bytes / static_cast<std::size_t>(ranks) * static_cast<std::size_t>(rank);
  const std::size_t border = bytes / static_cast<std::size_t>(ranks) >= (1 << 16) ? 4096 : 64;
  const std::size_t aligned = (address + even) / border * border;
  return aligned <= address ? 0 : std::min(aligned - address, bytes);
}

// The error of a collective that its stream skipped because a task before it had failed.
std::exception_ptr skipped() {
  static const std::exception_ptr error = std::make_exception_ptr(
      CommError("the collective did not run: an earlier task of its stream failed"));
  return error;
}

}  // namespace

class DirectCommunicator::Memory final : public SharedMemory {
 public:
  Memory(const DirectCommunicator* comm, std::uint64_t id, std::vector<Segment> segments)
      : comm_(comm), id_(id), segments_(std::move(segments)) {}
  std::span<std::byte> local() const override { return of(comm_->rank()); }

  const DirectCommunicator* comm() const { return comm_; }
  std::uint64_t id() const { return id_; }
  std::span<std::byte> of(int rank) const {
    return segments_[static_cast<std::size_t>(rank)].bytes;
  }
  float* floats(int rank, std::size_t offset) const {
    return reinterpret_cast<float*>(of(rank).data() + offset);
  }

 private:
  const DirectCommunicator* comm_;
  std::uint64_t id_;
  std::vector<Segment> segments_;  // [rank]
};

DirectCommunicator::DirectCommunicator(int rank, int size, Segment control,
                                       std::unique_ptr<SegmentSource> source,
                                       const CommOptions& options)
    : Communicator(rank, size),
      control_(std::move(control)),
      source_(std::move(source)),
      meeting_(ControlBlock(control_.bytes, size), rank,
               [this](int peer) { return source_->died(peer); }),
      timeout_(options.timeout),
      reserved_(static_cast<std::size_t>(size), 0) {}

void DirectCommunicator::join(double seconds) {
  meeting_.meet({.kind = CollectiveKind::join}, seconds);
}

template <typename Body>
Work DirectCommunicator::launch(Stream& stream, std::uint64_t bytes, Body body) {
  {
    std::lock_guard lock(mutex_);
    ++stats_.collectives;
    stats_.bytes += bytes;
  }
  auto error = std::make_shared<std::exception_ptr>(skipped());
  const double timeout = timeout_.load();
  stream.submit([this, error, timeout, body = std::move(body)]() mutable {
    try {
      body(++sequence_, timeout);
      *error = nullptr;
    } catch (const CommError&) {
      *error = std::current_exception();
    } catch (const std::exception& e) {
      // The others must not wait for a rank that is out.
      meeting_.control().abort(fmt::format("rank {} failed: {}", rank(), e.what()), rank());
      *error = std::current_exception();
    }
  });
  return Work(stream.record(), error);
}

DirectCommunicator::Memory& DirectCommunicator::own(SharedMemory& memory) const {
  auto* direct = dynamic_cast<Memory*>(&memory);
  DTRAIN_CHECK(direct != nullptr && direct->comm() == this,
               "the memory was not allocated by this communicator");
  return *direct;
}

std::vector<std::vector<std::byte>> DirectCommunicator::exchange(Collective& collective,
                                                                 std::span<const std::byte> bytes) {
  std::vector<std::vector<std::byte>> all(static_cast<std::size_t>(size()));
  if (size() == 1) {
    all[0].assign(bytes.begin(), bytes.end());
    return all;
  }
  std::ranges::copy(bytes, meeting_.outbox().begin());
  meeting_.meet(collective, timeout_.load());
  ++collective.phase;
  for (int r = 0; r < size(); ++r) {
    const auto inbox = meeting_.inbox(r).first(bytes.size());
    all[static_cast<std::size_t>(r)].assign(inbox.begin(), inbox.end());
  }
  return all;
}

std::unique_ptr<SharedMemory> DirectCommunicator::allocate(std::size_t bytes) {
  if (meeting_.control().aborted()) meeting_.control().throw_aborted();
  Collective collective{.kind = CollectiveKind::allocate, .sequence = ++sequence_};
  const std::uint64_t id = memories_++;
  collective.memory = id;

  // All ranks say what they need and what they see before anyone takes it.
  struct Wish {
    std::uint64_t bytes;
    std::uint64_t available;
  };
  const AvailableMemory available = available_memory();
  const Wish wish{bytes, available.bytes};
  std::vector<Wish> wishes;
  for (const auto& raw : exchange(collective, std::as_bytes(std::span(&wish, 1)))) {
    std::memcpy(&wishes.emplace_back(), raw.data(), sizeof(Wish));
  }
  std::uint64_t need = 0;
  std::uint64_t free = available.bytes;
  for (const Wish& w : wishes) {
    need = w.bytes > UINT64_MAX - need ? UINT64_MAX : need + w.bytes;
    free = std::min(free, w.available);
  }
  if (need > free) {
    throw DeviceError(fmt::format(
        "need {} of memory for the gradients of {} ranks, {} free (limit: {}): raise the limit, or "
        "use fewer processes, fewer virtual ranks or a smaller model",
        mebibytes(need), size(), mebibytes(free), available.limit));
  }

  // Then each tries, and all hear how it went.
  std::vector<Segment> segments(static_cast<std::size_t>(size()));
  std::array<char, 512> failure{};
  const auto attempt = [&](auto&& action) {
    std::string text;
    try {
      action();
    } catch (const std::exception& e) {
      text = fmt::format("rank {}: {}", rank(), e.what());
    }
    failure.fill('\0');
    std::copy_n(text.data(), std::min(text.size(), failure.size() - 1), failure.data());
    for (const auto& raw : exchange(collective, std::as_bytes(std::span(failure)))) {
      const auto* other = reinterpret_cast<const char*>(raw.data());
      if (other[0] == '\0') continue;
      source_->retire(id);
      throw DeviceError(std::string(other));
    }
  };
  attempt([&] { segments[static_cast<std::size_t>(rank())] = source_->create(id, bytes); });
  attempt([&] {
    for (int r = 0; r < size(); ++r) {
      const auto peer = static_cast<std::size_t>(r);
      if (r != rank()) segments[peer] = source_->open(id, r, wishes[peer].bytes);
    }
  });
  source_->retire(id);

  std::lock_guard lock(mutex_);
  for (std::size_t r = 0; r < wishes.size(); ++r) reserved_[r] += wishes[r].bytes;
  return std::make_unique<Memory>(this, id, std::move(segments));
}

std::shared_ptr<const DirectCommunicator::Plan> DirectCommunicator::prepare(const TreeSum& sum) {
  DTRAIN_CHECK(sum.partials.size() == static_cast<std::size_t>(size()),
               "a sum planned for {} ranks in a group of {}", sum.partials.size(), size());
  const std::uint64_t hash = hash_of(sum);
  std::lock_guard lock(mutex_);
  if (last_plan_ && last_plan_->hash == hash &&
      last_plan_->virtual_ranks == sum.tree.virtual_ranks() &&
      std::ranges::equal(last_plan_->partials, sum.partials, [](const auto& a, const auto& b) {
        return std::ranges::equal(a, b, [](const Partial& p, const Partial& q) {
          return p.node == q.node && p.offset == q.offset;
        });
      })) {
    return last_plan_;
  }
  std::vector<Node> nodes;
  std::size_t most = 0;
  for (const auto& partials : sum.partials) {
    for (const Partial& p : partials) nodes.push_back(p.node);
    most = std::max(most, partials.size());
  }
  TreeKernel kernel(static_cast<int>(nodes.size()), additions(sum.tree, nodes));
  last_plan_ = std::make_shared<Plan>(
      Plan{sum.tree.virtual_ranks(), sum.partials, hash, most, std::move(kernel)});
  return last_plan_;
}

std::shared_ptr<const DirectCommunicator::Plan> DirectCommunicator::rank_order(std::size_t offset) {
  std::lock_guard lock(mutex_);
  if (rank_order_ && rank_order_->partials[0][0].offset == offset) return rank_order_;
  std::vector<Addition> order;
  for (int r = 1; r < size(); ++r) order.push_back({0, r});
  const std::vector<std::vector<Partial>> partials(static_cast<std::size_t>(size()),
                                                   {Partial{{}, offset}});
  rank_order_ = std::make_shared<Plan>(Plan{0, partials, 0, 1, TreeKernel(size(), order)});
  return rank_order_;
}

Work DirectCommunicator::tree_sum(Stream& stream, SharedMemory& memory, const TreeSum& sum,
                                  std::size_t first, std::size_t count) {
  const Memory& direct = own(memory);
  const Sum task{&direct, prepare(sum), first * sizeof(float), sum.result + first * sizeof(float),
                 count};
  {
    std::lock_guard lock(mutex_);
    ++stats_.tree_sums;
  }
  return launch(stream, count * sizeof(float),
                [this, task, first](std::uint64_t sequence, double timeout) {
                  run_sum({.kind = CollectiveKind::tree_sum,
                           .sequence = sequence,
                           .count = task.count,
                           .first = first,
                           .memory = task.memory->id(),
                           .plan = task.plan->hash},
                          task, timeout);
                });
}

Work DirectCommunicator::all_reduce(Stream& stream, SharedMemory& memory, std::size_t offset,
                                    std::size_t count) {
  const Sum task{&own(memory), rank_order(offset), 0, offset, count};
  return launch(stream, count * sizeof(float),
                [this, task](std::uint64_t sequence, double timeout) {
                  run_sum({.kind = CollectiveKind::all_reduce,
                           .sequence = sequence,
                           .count = task.count,
                           .first = task.result,
                           .memory = task.memory->id()},
                          task, timeout);
                });
}

void DirectCommunicator::check_bounds(const Sum& sum) const {
  const std::size_t bytes = sum.count * sizeof(float);
  const auto check = [&](int rank, std::size_t offset) {
    const std::size_t have = sum.memory->of(rank).size();
    DTRAIN_CHECK(
        sum.count <= have / sizeof(float) && offset <= have - bytes && offset % sizeof(float) == 0,
        "{} floats at byte {} of {} bytes of rank {}", sum.count, offset, have, rank);
  };
  for (int r = 0; r < size(); ++r) {
    check(r, sum.result);
    for (const Partial& p : sum.plan->partials[static_cast<std::size_t>(r)]) {
      const std::size_t offset = p.offset + sum.shift;
      check(r, offset);
      DTRAIN_CHECK(
          offset == sum.result || offset + bytes <= sum.result || sum.result + bytes <= offset,
          "{} floats at byte {} of rank {} overlap the result at byte {}", sum.count, offset, r,
          sum.result);
    }
  }
}

void DirectCommunicator::run_sum(Collective collective, const Sum& sum, double timeout) {
  const std::size_t bytes = sum.count * sizeof(float);
  const std::size_t small = meeting_.own_processors() ? small_sum_bytes : small_sum_bytes_shared;
  if (size() > 1 && sum.plan->most * bytes <= meeting_.control().stage_bytes() &&
      static_cast<std::size_t>(sum.plan->kernel.inputs()) * bytes <= small) {
    sum_small(collective, sum, timeout);
  } else {
    sum_large(collective, sum, timeout);
  }
}

void DirectCommunicator::sum_small(const Collective& collective, const Sum& sum, double timeout) {
  const std::size_t bytes = sum.count * sizeof(float);
  const std::span<std::byte> local = sum.memory->local();
  std::byte* out = meeting_.outbox().data();
  for (const Partial& p : sum.plan->partials[static_cast<std::size_t>(rank())]) {
    // Out of bounds is an error below, once all ranks are known to mean the same.
    const std::size_t offset = p.offset + sum.shift;
    if (bytes <= local.size() && offset <= local.size() - bytes) {
      std::memcpy(out, local.data() + offset, bytes);
    }
    out += bytes;
  }
  meeting_.meet(collective, timeout);
  check_bounds(sum);
  std::vector<const float*> inputs;
  inputs.reserve(static_cast<std::size_t>(sum.plan->kernel.inputs()));
  for (int r = 0; r < size(); ++r) {
    const std::byte* in = meeting_.inbox(r).data();
    for (std::size_t i = 0; i < sum.plan->partials[static_cast<std::size_t>(r)].size(); ++i) {
      inputs.push_back(reinterpret_cast<const float*>(in + i * bytes));
    }
  }
  float* const result = sum.memory->floats(rank(), sum.result);
  sum.plan->kernel.run(inputs, {&result, 1}, sum.count);
}

void DirectCommunicator::sum_large(Collective collective, const Sum& sum, double timeout) {
  meeting_.meet(collective, timeout);
  check_bounds(sum);
  const std::size_t bytes = sum.count * sizeof(float);
  const std::size_t begin = part_border(bytes, sum.result, rank(), size());
  const std::size_t end = part_border(bytes, sum.result, rank() + 1, size());
  std::vector<const float*> inputs;
  std::vector<float*> outputs;
  // Each rank writes its own copy first and then its neighbours', so that not all write to one.
  for (int i = 0; i < size(); ++i) {
    outputs.push_back(sum.memory->floats((rank() + i) % size(), sum.result + begin));
  }
  for (int r = 0; r < size(); ++r) {
    for (const Partial& p : sum.plan->partials[static_cast<std::size_t>(r)]) {
      inputs.push_back(sum.memory->floats(r, p.offset + sum.shift + begin));
    }
  }
  // Results overwrite inputs, so their lines are in the cache already: writing past it would be
  // slower at every size (measured, 100 MB on 2 ranks: 16 against 11 ms).
  sum.plan->kernel.run(inputs, outputs, (end - begin) / sizeof(float));
  ++collective.phase;
  meeting_.meet(collective, timeout);
}

Work DirectCommunicator::all_gather(Stream& stream, std::span<const std::byte> in,
                                    std::span<std::byte> out) {
  DTRAIN_CHECK(out.size() == in.size() * static_cast<std::size_t>(size()),
               "{} bytes for what {} ranks give, {} bytes each", out.size(), size(), in.size());
  return launch(stream, in.size(), [this, in, out](std::uint64_t sequence, double timeout) {
    run_all_gather({.kind = CollectiveKind::all_gather, .sequence = sequence, .count = in.size()},
                   in, out, timeout);
  });
}

void DirectCommunicator::run_all_gather(Collective collective, std::span<const std::byte> in,
                                        std::span<std::byte> out, double timeout) {
  std::size_t done = 0;
  do {
    const std::size_t bytes = std::min(in.size() - done, meeting_.control().stage_bytes());
    if (bytes > 0) std::memcpy(meeting_.outbox().data(), in.data() + done, bytes);
    meeting_.meet(collective, timeout);
    ++collective.phase;
    for (int r = 0; r < size() && bytes > 0; ++r) {
      std::byte* to = out.data() + static_cast<std::size_t>(r) * in.size() + done;
      if (size() == 1) {
        std::memmove(to, in.data() + done, bytes);
      } else {
        std::memcpy(to, meeting_.inbox(r).data(), bytes);
      }
    }
    done += bytes;
  } while (done < in.size());
}

Work DirectCommunicator::broadcast(Stream& stream, std::span<std::byte> bytes, int root) {
  DTRAIN_CHECK(root >= 0 && root < size(), "root {} of {} ranks", root, size());
  return launch(stream, bytes.size(), [this, bytes, root](std::uint64_t sequence, double timeout) {
    run_broadcast({.kind = CollectiveKind::broadcast,
                   .root = root,
                   .sequence = sequence,
                   .count = bytes.size()},
                  bytes, timeout);
  });
}

void DirectCommunicator::run_broadcast(Collective collective, std::span<std::byte> bytes,
                                       double timeout) {
  const bool is_root = collective.root == rank();
  std::size_t done = 0;
  do {
    // The first part goes through the root's own staging area, so that ranks that disagree about
    // the root do not write over each other; once all have met, the root uses those of all.
    const bool narrow = collective.phase == 0;
    const std::span<std::byte> out = narrow ? meeting_.outbox() : meeting_.wide_outbox();
    const std::size_t part = std::min(bytes.size() - done, out.size());
    if (is_root && part > 0) std::memcpy(out.data(), bytes.data() + done, part);
    meeting_.meet(collective, timeout);
    ++collective.phase;
    const auto in = narrow ? meeting_.inbox(collective.root) : meeting_.wide_inbox();
    if (!is_root && part > 0) std::memcpy(bytes.data() + done, in.data(), part);
    done += part;
  } while (done < bytes.size());
}

void DirectCommunicator::abort(const std::string& reason) {
  meeting_.control().abort(reason, -1);
}

void DirectCommunicator::set_timeout(double seconds) {
  timeout_.store(seconds);
}

CommStats DirectCommunicator::stats() const {
  std::lock_guard lock(mutex_);
  CommStats stats = stats_;
  const auto [least, most] = std::ranges::minmax(reserved_);
  const std::size_t all = std::accumulate(reserved_.begin(), reserved_.end(), std::size_t{0});
  stats.transport =
      fmt::format("{}: {} + {} control", source_->transport(),
                  least == most ? fmt::format("{} x {}", size(), mebibytes(most))
                                : fmt::format("{} on {} ranks", mebibytes(all), size()),
                  mebibytes(ControlBlock::bytes_needed(size())));
  return stats;
}

}  // namespace dtrain
