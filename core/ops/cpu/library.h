// oneDNN as the operators use it: an engine and a stream per context, and a cache of plans.
//
// A plan is what one operator needs for one set of shapes: its primitive and the reorders around
// it. Plans are made once and kept as long as the context; running one creates no primitive and
// takes its scratch memory from the context's allocator, so that a warm step costs kernels only.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <list>
#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <dnnl.hpp>

#include "dtrain/core/ops/context.h"
#include "dtrain/core/ops/weight_cache.h"

namespace dtrain::ops {

// Attributes of all primitives: scratchpads are the caller's.
dnnl::primitive_attr user_scratchpad();

// A primitive and the memory objects of its arguments, which get their addresses at each run.
class Step {
 public:
  struct Argument {
    int name;  // DNNL_ARG_...
    dnnl::memory::desc desc;
  };
  // Throws dnnl::error.
  Step(const dnnl::engine& engine, const dnnl::primitive& primitive,
       const std::vector<Argument>& arguments, const dnnl::memory::desc& scratchpad);
  // A copy of memory from one order to another; under `add` added to what is there.
  static Step reorder(const dnnl::engine& engine, const dnnl::memory::desc& from,
                      const dnnl::memory::desc& to, bool add = false);

  // `data`: an address for each argument, in the order of the constructor.
  void run(OpContext& context, std::initializer_list<void*> data);

 private:
  dnnl::primitive primitive_;
  std::vector<dnnl::memory> memories_;
  std::unordered_map<int, dnnl::memory> arguments_;
  std::optional<dnnl::memory> scratchpad_;
  std::size_t scratchpad_bytes_ = 0;
};

// A step whose operands may have to be brought into another memory order first, and its output
// afterwards. Orders are compared as descriptors; operands in the right one are used in place.
class Plan {
 public:
  struct Operand {
    int name;                   // DNNL_ARG_...
    dnnl::memory::desc given;   // as the caller has it
    dnnl::memory::desc wanted;  // as the primitive takes it
    bool weights = false;       // may come from the context's WeightCache
  };
  // `output` is written, `inputs` are read.
  Plan(const dnnl::engine& engine, const dnnl::primitive& primitive,
       const std::vector<Operand>& inputs, const Operand& output,
       const dnnl::memory::desc& scratchpad);

  // `inputs` in the order of the constructor; 2 to 4. Under `add` the result is added to the
  // output, on its way into the caller's order.
  void run(OpContext& context, std::initializer_list<const void*> inputs, void* output,
           bool add = false);
  bool can_add() const { return add_.has_value(); }

 private:
  struct Packing {
    std::size_t bytes;
    Step step;
    dnnl::memory::desc order = {};  // what the step makes
    bool weights = false;
  };
  std::vector<std::optional<Packing>> pack_;
  std::optional<Packing> unpack_;
  std::optional<Step> add_;  // instead of unpack_'s, adding
  Step step_;
};

// Which operation, on which shapes, layouts and options. Unused words are 0.
using PlanKey = std::array<std::int64_t, 20>;

struct PlanKeyHash {
  std::size_t operator()(const PlanKey& key) const;
};

// First word of a key.
enum class Operation : std::int64_t {
  matmul,
  conv2d,
  conv2d_backward_input,
  conv2d_backward_weight,
};

}  // namespace dtrain::ops

namespace dtrain {

struct WeightCache::Impl {
 public:
  explicit Impl(Allocator& allocator) : allocator_(allocator) {}
  void begin_step();
  // The weights at `source` in another memory order; `pack` makes them where no lane has in this
  // step.
  const void* packed(const void* source, const dnnl::memory::desc& order,
                     const std::function<void(void*)>& pack);

 private:
  struct Entry {
    dnnl::memory::desc order;
    MemoryBlock memory;
    std::uint64_t ready_in = 0;  // the step that it was packed in
    bool busy = false;           // a lane is packing it
  };
  Allocator& allocator_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t step_ = 1;
  std::unordered_map<const void*, std::list<Entry>> entries_;  // by the address of the weights
};

struct OpContext::Library {
  explicit Library(Convolution convolution_)
      : engine(dnnl::engine::kind::cpu, 0), stream(engine), convolution(convolution_) {}

  // The plan of `key`, made by `make` the first time. Throws InternalError if the calling thread
  // is not bound to the context (Note [Threads of an operator]), or if oneDNN refuses.
  ops::Plan& plan(const OpContext& context, const ops::PlanKey& key, std::string_view who,
                  const std::function<ops::Plan()>& make);

  dnnl::engine engine;
  dnnl::stream stream;
  const Convolution convolution;
  WeightCache::Impl* weights = nullptr;  // see use_weight_cache
  std::unordered_map<ops::PlanKey, ops::Plan, ops::PlanKeyHash> plans;
};

}  // namespace dtrain
