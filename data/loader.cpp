#include "dtrain/data/loader.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <limits>
#include <mutex>
#include <pthread.h>
#include <system_error>
#include <thread>
#include <unordered_set>
#include <utility>

#include "dtrain/core/base/clock.h"
#include "dtrain/core/base/error.h"
#include "dtrain/core/base/log.h"
#include "dtrain/core/base/text.h"
#include "dtrain/data/load_order.h"

namespace dtrain {

namespace {

constexpr std::int64_t nothing = -1;

Shape batch_shape(const Shape& sample, std::int64_t rows) {
  std::vector<std::int64_t> sizes{rows};
  sizes.insert(sizes.end(), sample.sizes().begin(), sample.sizes().end());
  return Shape(std::span<const std::int64_t>(sizes));
}

std::span<std::byte> row_bytes(const Tensor& tensor, std::int64_t row, std::size_t bytes) {
  return {static_cast<std::byte*>(tensor.raw()) + static_cast<std::size_t>(row) * bytes, bytes};
}

// Makes micro-batches: everything that does not depend on who reads when.
struct Source {
  // `reading` shows the sample under way to whoever waits.
  MicroBatch load(const LoadOrder& order, const LoadItem& item, std::atomic<std::int64_t>& reading,
                  std::vector<SkippedSample>& skipped) {
    const SampleSpec& spec = dataset->spec();
    const PositionRange positions = order.positions(item);
    const std::size_t input_bytes = spec.input.bytes();
    const std::size_t target_bytes = spec.target.bytes();
    // All of one size, also the last one of an epoch, so that the allocator knows it already.
    const std::int64_t rows = std::min(order.plan().micro, order.plan().samples);
    const Tensor inputs = Tensor::empty(batch_shape(spec.input.shape, rows), spec.input.dtype,
                                        allocator, "batch inputs");
    const Tensor targets = Tensor::empty(batch_shape(spec.target.shape, rows), spec.target.dtype,
                                         allocator, "batch targets");
    MicroBatch batch;
    batch.positions.reserve(static_cast<std::size_t>(positions.size()));
    batch.ids.reserve(static_cast<std::size_t>(positions.size()));
    for (std::int64_t position = positions.first; position < positions.last; ++position) {
      const std::int64_t id =
          sampler.sample(item.epoch, item.batch_in_epoch * order.plan().global + position);
      reading.store(id, std::memory_order_relaxed);
      const std::span<std::byte> input = row_bytes(inputs, batch.size(), input_bytes);
      try {
        dataset->read(id, input, row_bytes(targets, batch.size(), target_bytes));
      } catch (const DataError& error) {
        if (!skip_bad) throw;
        skipped.push_back({id, error.what()});
        continue;
      }
      if (spec.input.dtype == DType::f32) {
        transforms.apply({reinterpret_cast<float*>(input.data()), input_bytes / sizeof(float)},
                         item.epoch, id, training);
      }
      batch.positions.push_back(position);
      batch.ids.push_back(id);
    }
    reading.store(nothing, std::memory_order_relaxed);
    batch.inputs = inputs.rows(0, batch.size());
    batch.targets = targets.rows(0, batch.size());
    return batch;
  }

  MicroBatch no_samples() const {
    const SampleSpec& spec = dataset->spec();
    MicroBatch batch;
    batch.inputs = Tensor::wrap(nullptr, batch_shape(spec.input.shape, 0), spec.input.dtype);
    batch.targets = Tensor::wrap(nullptr, batch_shape(spec.target.shape, 0), spec.target.dtype);
    return batch;
  }

  std::shared_ptr<const Dataset> dataset;
  Transforms transforms;
  Sampler sampler;
  bool training;
  bool skip_bad;
  Allocator allocator;
};

// Place of one micro-batch in the ring.
struct Slot {
  enum class State { free, loading, ready, taken };
  State state = State::free;
  std::int64_t number = nothing;
  MicroBatch batch;
  std::vector<SkippedSample> skipped;
  std::exception_ptr error;
  std::atomic<std::int64_t> reading{nothing};  // sample id
};

// What the loader and its workers share, between one start() and the next. See Note [Blocked
// readers].
struct Ring {
  Ring(std::shared_ptr<Source> source_, const LoadOrder& order_, std::size_t bound, int workers)
      : source(std::move(source_)),
        order(order_),
        slots(bound),
        finished(static_cast<std::size_t>(workers), false) {}

  Slot& slot(std::int64_t number) { return slots[static_cast<std::size_t>(number) % slots.size()]; }
  bool has_room() const {
    return next < order.size() && next - head < static_cast<std::int64_t>(slots.size());
  }
  // Frees the places at the ring's head that were taken; with the lock held.
  void advance() {
    while (head < next && slot(head).state == Slot::State::taken) {
      slot(head).state = Slot::State::free;
      ++head;
    }
    // Being woken costs more than a small micro-batch: where the other half lasts for a while,
    // workers come for half a ring at once.
    constexpr std::int64_t long_ring = 16;
    const auto size = static_cast<std::int64_t>(slots.size());
    if (size < long_ring || 2 * (size - (next - head)) >= size) room.notify_all();
  }

  void work(std::size_t worker) {
    std::unique_lock lock(mutex);
    while (true) {
      room.wait(lock, [&] { return stop || next == order.size() || has_room(); });
      if (stop || next == order.size()) break;
      const std::int64_t number = next++;
      Slot& place = slot(number);
      place.number = number;
      const LoadItem item = order.item(number);
      place.state = Slot::State::loading;
      lock.unlock();
      MicroBatch batch;
      std::vector<SkippedSample> skipped;
      std::exception_ptr error;
      try {
        batch = source->load(order, item, place.reading, skipped);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      if (stop) break;
      place.batch = std::move(batch);
      place.skipped = std::move(skipped);
      place.error = error;
      place.state = Slot::State::ready;
      ready.notify_all();
    }
    finished[worker] = true;
    ended.notify_all();
  }

  const std::shared_ptr<Source> source;
  const LoadOrder order;
  std::mutex mutex;
  std::condition_variable room;   // workers: there is something to load
  std::condition_variable ready;  // next(): a micro-batch is there
  std::condition_variable ended;  // stop(): a worker has finished
  std::vector<Slot> slots;        // number n has its place at n % size
  std::int64_t head = 0;          // lowest number that was not taken
  std::int64_t next = 0;          // lowest number that no worker has begun
  bool stop = false;
  std::vector<bool> finished;  // by worker
};

}  // namespace

struct Loader::Impl {
  Impl(std::shared_ptr<Source> source_, LoaderOptions options_)
      : source(std::move(source_)), options(options_) {}

  // Waits for the micro-batch and takes it out of the ring.
  Slot& wait_for(std::unique_lock<std::mutex>& lock, Ring& shared, std::int64_t number) const;
  [[noreturn]] void throw_timeout(Ring& shared, std::int64_t number) const;
  void note(double waited, std::vector<SkippedSample> skipped);

  std::shared_ptr<Ring> current() {
    const std::lock_guard lock(mutex);
    return ring;
  }

  const std::shared_ptr<Source> source;
  const LoaderOptions options;
  std::vector<std::thread> threads;  // of the thread that starts and stops

  std::mutex mutex;            // of what follows
  std::shared_ptr<Ring> ring;  // null while stopped
  double wait_seconds = 0;
  std::vector<SkippedSample> skipped;
  std::unordered_set<std::int64_t> ever_skipped;
};

Loader::Loader(std::shared_ptr<const Dataset> dataset, Transforms transforms, Sampler sampler,
               bool training, LoaderOptions options, const Allocator& allocator) {
  DTRAIN_CHECK(options.workers >= 0 && options.prefetch >= 1, "{} workers, prefetch {}",
               options.workers, options.prefetch);
  DTRAIN_CHECK(sampler.samples() == dataset->size(), "sampler of {} samples for {}",
               sampler.samples(), dataset->size());
  impl_ = std::make_unique<Impl>(
      std::make_shared<Source>(Source{std::move(dataset), std::move(transforms), sampler, training,
                                      options.skip_bad, allocator}),
      options);
}

Loader::~Loader() {
  stop();
}

void Loader::start(const LoadRequest& request) {
  stop();
  DTRAIN_CHECK(request.plan.samples == impl_->source->sampler.samples(),
               "plan of {} samples, data set of {}", request.plan.samples,
               impl_->source->sampler.samples());
  const int workers = impl_->options.workers;
  const std::size_t bound = static_cast<std::size_t>(std::max<std::int64_t>(queue_bound(), 1));
  const auto ring = std::make_shared<Ring>(impl_->source, LoadOrder(request), bound, workers);
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->ring = ring;
  }
  for (int worker = 0; worker < workers; ++worker) {
    try {
      impl_->threads.emplace_back([ring, worker] {
        ::pthread_setname_np(::pthread_self(), fmt::format("load-{}", worker).c_str());
        ring->work(static_cast<std::size_t>(worker));
      });
    } catch (const std::system_error& error) {
      stop();
      throw ConfigError(
          fmt::format("data.workers: {}: cannot start loader thread {}: {}; use fewer"
                      " workers, or raise the limit of processes (ulimit -u)",
                      workers, worker + 1, error.what()));
    }
  }
}

void Loader::stop() {
  std::shared_ptr<Ring> ring;
  {
    const std::lock_guard lock(impl_->mutex);
    ring.swap(impl_->ring);
  }
  if (!ring) return;
  std::unique_lock lock(ring->mutex);
  ring->stop = true;
  ring->room.notify_all();
  ring->ready.notify_all();
  const auto count = static_cast<std::ptrdiff_t>(impl_->threads.size());
  ring->ended.wait_for(lock, std::chrono::duration<double>(impl_->options.stop_patience), [&] {
    return std::count(ring->finished.begin(), ring->finished.begin() + count, true) == count;
  });
  const std::vector<bool> finished = ring->finished;
  std::string reading;
  for (Slot& slot : ring->slots) {
    if (slot.state == Slot::State::loading && slot.reading.load() != nothing && reading.empty()) {
      reading = ring->source->dataset->origin(slot.reading.load());
    }
    slot.batch = {};
  }
  lock.unlock();
  int left = 0;
  for (std::size_t i = 0; i < impl_->threads.size(); ++i) {
    if (finished[i]) {
      impl_->threads[i].join();
    } else {
      impl_->threads[i].detach();
      ++left;
    }
  }
  impl_->threads.clear();
  if (left > 0) {
    spdlog::warn("{} did not come back from reading (one reads {}); left behind",
                 counted(left, "loader thread"), reading.empty() ? "an unknown sample" : reading);
  }
}

MicroBatch Loader::next(std::int64_t epoch, std::int64_t batch_in_epoch, std::int64_t v,
                        std::int64_t m) {
  const std::shared_ptr<Ring> ring = impl_->current();
  DTRAIN_CHECK(ring != nullptr, "next() without start()");
  const LoadItem item{epoch, batch_in_epoch, v, m};
  if (ring->order.positions(item).size() == 0) return impl_->source->no_samples();
  const std::int64_t number = ring->order.number(item);

  const TimePoint begin = Clock::now();
  std::vector<SkippedSample> skipped;
  if (impl_->options.workers == 0) {
    std::atomic<std::int64_t> reading;
    MicroBatch batch = impl_->source->load(ring->order, item, reading, skipped);
    impl_->note(seconds_since(begin), std::move(skipped));
    return batch;
  }
  std::unique_lock lock(ring->mutex);
  Slot& slot = impl_->wait_for(lock, *ring, number);
  MicroBatch batch = std::exchange(slot.batch, {});
  skipped = std::exchange(slot.skipped, {});
  const std::exception_ptr error = std::exchange(slot.error, nullptr);
  slot.state = Slot::State::taken;
  ring->advance();
  lock.unlock();
  impl_->note(seconds_since(begin), std::move(skipped));
  if (error) std::rethrow_exception(error);
  return batch;
}

Slot& Loader::Impl::wait_for(std::unique_lock<std::mutex>& lock, Ring& shared,
                             std::int64_t number) const {
  Slot& slot = shared.slot(number);
  const auto arrived = [&] {
    return shared.stop || (slot.number == number && slot.state == Slot::State::ready);
  };
  DTRAIN_CHECK(
      number >= shared.head && !(slot.number == number && slot.state == Slot::State::taken),
      "micro-batch {} was asked for twice", number);
  if (options.timeout <= 0) {
    shared.ready.wait(lock, arrived);
  } else if (!shared.ready.wait_for(lock, std::chrono::duration<double>(options.timeout),
                                    arrived)) {
    throw_timeout(shared, number);
  }
  DTRAIN_CHECK(!shared.stop, "the loader was stopped while next() waited");
  return slot;
}

// With the ring's lock held.
void Loader::Impl::throw_timeout(Ring& shared, std::int64_t number) const {
  // What holds it up: its own reader, or else the one that was begun first.
  const Slot* blamed = nullptr;
  for (const Slot& slot : shared.slots) {
    if (slot.state != Slot::State::loading) continue;
    if (blamed == nullptr || slot.number == number ||
        (blamed->number != number && slot.number < blamed->number)) {
      blamed = &slot;
    }
  }
  DTRAIN_CHECK(blamed != nullptr,
               "micro-batch {} waits for number {}, which was not asked for within {} s", number,
               shared.head, options.timeout);
  const std::int64_t id = blamed->reading.load();
  throw DataError(id == nothing ? std::string("data set") : source->dataset->origin(id), -1,
                  fmt::format("still being read after {} s (data.timeout); is its file system "
                              "reachable? A slow one needs a longer timeout or more data.workers",
                              options.timeout));
}

void Loader::Impl::note(double waited, std::vector<SkippedSample> bad) {
  const std::lock_guard lock(mutex);
  wait_seconds += waited;
  for (SkippedSample& sample : bad) {
    if (ever_skipped.insert(sample.id).second) skipped.push_back(std::move(sample));
  }
}

double Loader::take_wait_seconds() {
  const std::lock_guard lock(impl_->mutex);
  return std::exchange(impl_->wait_seconds, 0);
}

std::vector<SkippedSample> Loader::take_skipped() {
  const std::lock_guard lock(impl_->mutex);
  return std::exchange(impl_->skipped, {});
}

std::int64_t Loader::queued() const {
  const std::shared_ptr<Ring> ring = impl_->current();
  if (!ring) return 0;
  const std::lock_guard lock(ring->mutex);
  return std::count_if(ring->slots.begin(), ring->slots.end(), [](const Slot& slot) {
    return slot.state == Slot::State::loading || slot.state == Slot::State::ready;
  });
}

std::int64_t Loader::queue_bound() const {
  return std::int64_t{impl_->options.workers} * impl_->options.prefetch;
}

}  // namespace dtrain
