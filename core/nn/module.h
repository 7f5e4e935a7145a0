// A module is a layer or a model: an immutable description of its parameters and of what it
// computes. It holds no values, so many passes use one module at once.
//
//   class TwoLayers : public Module {
//    public:
//     TwoLayers(int in, int hidden, int out)
//         : fc1_(add<Linear>("fc1", in, hidden)), fc2_(add<Linear>("fc2", hidden, out)) {}
//     Value forward(Pass& pass, const Value& x) const override {
//       return fc2_.forward(pass, functions::relu(pass, fc1_.forward(pass, x)));
//     }
//    private:
//     Linear& fc1_;
//     Linear& fc2_;
//   };
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dtrain/core/autograd/functions.h"
#include "dtrain/core/autograd/parameter.h"
#include "dtrain/core/autograd/pass.h"

namespace dtrain {

class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // x: [N, ...]: the micro-batch. Any number of passes may be inside at once.
  virtual Value forward(Pass& pass, const Value& x) const = 0;

  // What the tensor of this name in a file of weights from elsewhere is in this model: the name of
  // a parameter or buffer, or "" for what the model has no use for (a mask).
  virtual std::string name_in_model(std::string_view name_in_file) const {
    return std::string(name_in_file);
  }

 protected:
  // Names are joined with dots: "features.0.weight". Returned references live as long as the
  // module. Registration order is forward order: the arena lies in reverse of it.
  Parameter& add_parameter(const std::string& name, Shape shape, InitScheme init,
                           std::int64_t fan_in, bool norm_or_bias = false);
  Buffer& add_buffer(const std::string& name, Shape shape, float initial);
  RunningStatistics& add_running_statistics(Buffer& mean, Buffer& variance, float momentum);
  RandomSite& add_random_site();

  template <typename Child, typename... Arguments>
  Child& add(const std::string& name, Arguments&&... arguments) {
    auto child = std::make_unique<Child>(std::forward<Arguments>(arguments)...);
    Child& reference = *child;
    add_child(name, std::move(child));
    return reference;
  }

 private:
  friend class ArenaLayout;
  void add_child(const std::string& name, std::unique_ptr<Module> child);
  // In registration order; exactly one of the pointers is set.
  struct Member {
    std::string name;
    std::unique_ptr<Parameter> parameter;
    std::unique_ptr<Buffer> buffer;
    std::unique_ptr<Module> child;
  };
  std::vector<Member> members_;
  std::vector<std::unique_ptr<RunningStatistics>> statistics_;
  std::vector<std::unique_ptr<RandomSite>> random_sites_;
};

}  // namespace dtrain
