// Loads micro-batches with worker threads, in the order in which the lanes of a process use them.
//
// The order is known in advance, so workers fill a bounded ring of micro-batches ahead of the
// lanes; the number of workers, like the speed of each, changes no bit. Samples are read straight
// into the tensors that a Pass takes.
//
//   Loader loader(dataset, transforms, sampler, /*training=*/true, options, allocator);
//   loader.start({.plan = plan, .batch_in_epoch = 3, .last_virtual_rank = 4, .lanes = 2});
//   MicroBatch batch = loader.next(epoch, batch_in_epoch, v, m);
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dtrain/core/tensor/tensor.h"
#include "dtrain/data/batch_plan.h"
#include "dtrain/data/dataset.h"
#include "dtrain/data/sampler.h"
#include "dtrain/data/transforms.h"

namespace dtrain {

// n samples: those of a micro-batch's positions that exist and could be read.
struct MicroBatch {
  Tensor inputs;                        // [n, ...input shape]
  Tensor targets;                       // [n, ...target shape]
  std::vector<std::int64_t> positions;  // [n] positions in the global batch
  std::vector<std::int64_t> ids;        // [n] sample ids
  std::int64_t size() const { return static_cast<std::int64_t>(positions.size()); }
};

struct SkippedSample {
  std::int64_t id = 0;
  std::string reason;  // names file and record
};

struct LoaderOptions {
  int workers = 1;           // 0: next() reads in the calling thread
  int prefetch = 4;          // micro-batches that each worker may be ahead
  bool skip_bad = false;     // on_bad_sample: skip
  double timeout = 60;       // seconds that next() waits for workers; 0 waits for ever
  double stop_patience = 2;  // seconds that stop() waits for a worker that is reading
};

// What to load, from one batch on: epoch after epoch, until stop().
struct LoadRequest {
  BatchPlan plan;
  std::int64_t epoch = 0;
  std::int64_t batch_in_epoch = 0;
  std::int64_t last_epoch = -1;  // exclusive; -1: endless
  // Virtual ranks [first, last) of this process, run in waves of `lanes`: virtual rank
  // first + w * lanes + l by lane l in wave w.
  std::int64_t first_virtual_rank = 0;
  std::int64_t last_virtual_rank = 1;
  int lanes = 1;
};

// Note [Blocked readers]: a thread that waits for a file system cannot be ended from outside. So
// whatever a worker uses (data set, allocator, ring) belongs to it too; stop() and the destructor
// wait `stop_patience` seconds for it, say so in the log, and leave it behind. It changes nothing
// any more, ends when its read returns, and does not keep the process from ending.
class Loader {
 public:
  // `training` turns the random transforms on.
  Loader(std::shared_ptr<const Dataset> dataset, Transforms transforms, Sampler sampler,
         bool training, LoaderOptions options, const Allocator& allocator);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // Begins to load ahead; stops what was loading before.
  void start(const LoadRequest& request);
  // Ends the workers and drops what they loaded. next() in other threads throws InternalError.
  void stop();

  // Micro-batch m of virtual rank v in batch `batch_in_epoch` of `epoch`. Each is asked for once,
  // in the request's order per lane (one that has no positions may be left out); lanes may call at
  // the same time. Throws what loading it threw: a DataError for a bad sample under
  // `on_bad_sample: stop`; or for the timeout, which names what is being read.
  MicroBatch next(std::int64_t epoch, std::int64_t batch_in_epoch, std::int64_t v, std::int64_t m);

  // Seconds that callers of next() waited since the last call, all lanes together.
  double take_wait_seconds();
  // Samples that next() left out since the last call, each id once in the loader's life.
  std::vector<SkippedSample> take_skipped();
  // Micro-batches ready or being filled, and the bound of that number (workers * prefetch).
  std::int64_t queued() const;
  std::int64_t queue_bound() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dtrain
