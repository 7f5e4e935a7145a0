#include "dtrain/core/ops/cpu/library.h"

#include <string_view>

#include <omp.h>

#include "dtrain/core/base/error.h"

namespace dtrain::ops {

dnnl::primitive_attr user_scratchpad() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

Step::Step(const dnnl::engine& engine, const dnnl::primitive& primitive,
           const std::vector<Argument>& arguments, const dnnl::memory::desc& scratchpad)
    : primitive_(primitive), scratchpad_bytes_(scratchpad.get_size()) {
  for (const Argument& argument : arguments) {
    memories_.push_back(dnnl::memory(argument.desc, engine, DNNL_MEMORY_NONE));
    arguments_.emplace(argument.name, memories_.back());
  }
  if (scratchpad_bytes_ > 0) {
    scratchpad_ = dnnl::memory(scratchpad, engine, DNNL_MEMORY_NONE);
    arguments_.emplace(DNNL_ARG_SCRATCHPAD, *scratchpad_);
  }
}

Step Step::reorder(const dnnl::engine& engine, const dnnl::memory::desc& from,
                   const dnnl::memory::desc& to, bool add) {
  dnnl::primitive_attr attributes = user_scratchpad();
  if (add) {
    dnnl::post_ops sum;
    sum.append_sum(1);
    attributes.set_post_ops(sum);
  }
  const dnnl::reorder::primitive_desc description(engine, from, engine, to, attributes);
  return {engine,
          dnnl::reorder(description),
          {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}},
          description.scratchpad_desc()};
}

void Step::run(OpContext& context, std::initializer_list<void*> data) {
  DTRAIN_CHECK(data.size() == memories_.size(), "{} of {} arguments", data.size(),
               memories_.size());
  auto memory = memories_.begin();
  for (void* address : data) (memory++)->set_data_handle(address);
  MemoryBlock scratch;
  if (scratchpad_) {
    scratch = context.allocator().allocate(scratchpad_bytes_, "scratch memory of an operator");
    scratchpad_->set_data_handle(scratch.data());
  }
  primitive_.execute(context.library().stream, arguments_);
  context.library().stream.wait();
}

Plan::Plan(const dnnl::engine& engine, const dnnl::primitive& primitive,
           const std::vector<Operand>& inputs, const Operand& output,
           const dnnl::memory::desc& scratchpad)
    : step_([&] {
        std::vector<Step::Argument> arguments;
        for (const Operand& input : inputs) arguments.push_back({input.name, input.wanted});
        arguments.push_back({output.name, output.wanted});
        return Step(engine, primitive, arguments, scratchpad);
      }()) {
  for (const Operand& input : inputs) {
    std::optional<Packing>& pack = pack_.emplace_back();
    if (input.given != input.wanted) {
      pack = Packing{input.wanted.get_size(), Step::reorder(engine, input.given, input.wanted),
                     input.wanted, input.weights};
    }
  }
  if (output.given != output.wanted) {
    unpack_ = Packing{output.wanted.get_size(), Step::reorder(engine, output.wanted, output.given)};
    add_ = Step::reorder(engine, output.wanted, output.given, true);
  }
}

void Plan::run(OpContext& context, std::initializer_list<const void*> inputs, void* output,
               bool add) {
  DTRAIN_CHECK(!add || can_add(), "a plan that cannot add");
  DTRAIN_CHECK(inputs.size() == pack_.size() && inputs.size() <= 4, "{} of {} inputs",
               inputs.size(), pack_.size());
  std::array<MemoryBlock, 5> packed;
  std::array<void*, 4> address{};
  std::size_t i = 0;
  for (const void* input : inputs) {
    // oneDNN takes addresses of what it only reads without const.
    address[i] = const_cast<void*>(input);
    WeightCache::Impl* const cache = context.library().weights;
    if (pack_[i] && pack_[i]->weights && cache != nullptr) {
      address[i] = const_cast<void*>(cache->packed(input, pack_[i]->order, [&](void* to) {
        pack_[i]->step.run(context, {const_cast<void*>(input), to});
      }));
    } else if (pack_[i]) {
      packed[i] = context.allocator().allocate(pack_[i]->bytes, "packed operand");
      pack_[i]->step.run(context, {address[i], packed[i].data()});
      address[i] = packed[i].data();
    }
    ++i;
  }
  void* target = output;
  if (unpack_) {
    packed[4] = context.allocator().allocate(unpack_->bytes, "packed output");
    target = packed[4].data();
  }
  if (i == 2) {
    step_.run(context, {address[0], address[1], target});
  } else if (i == 3) {
    step_.run(context, {address[0], address[1], address[2], target});
  } else {
    step_.run(context, {address[0], address[1], address[2], address[3], target});
  }
  if (unpack_) (add ? *add_ : unpack_->step).run(context, {target, output});
}

std::size_t PlanKeyHash::operator()(const PlanKey& key) const {
  std::uint64_t hash = 0;
  for (const std::int64_t word : key) {
    hash = (hash ^ static_cast<std::uint64_t>(word)) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 29;
  }
  return hash;
}

}  // namespace dtrain::ops

namespace dtrain {

ops::Plan& OpContext::Library::plan(const OpContext& context, const ops::PlanKey& key,
                                    std::string_view who, const std::function<ops::Plan()>& make) {
  DTRAIN_CHECK(omp_get_max_threads() == context.threads(),
               "{}: the calling thread has a team of {}, the context one of {}; call "
               "bind_to_this_thread() first",
               who, omp_get_max_threads(), context.threads());
  const auto found = plans.find(key);
  if (found != plans.end()) return found->second;
  try {
    return plans.emplace(key, make()).first->second;
  } catch (const dnnl::error& error) {
    throw InternalError(
        fmt::format("{}: oneDNN has no kernel for these shapes: {}", who, error.what()));
  }
}

}  // namespace dtrain
