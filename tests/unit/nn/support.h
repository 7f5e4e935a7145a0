// A module that is nothing but its members.
#pragma once

#include <string>
#include <utility>

#include "dtrain/core/nn/arena.h"
#include "dtrain/core/nn/layers.h"

namespace dtrain {

class Bag final : public Module {
 public:
  Value forward(Pass&, const Value& x) const override { return x; }
  using Module::add;
  using Module::add_buffer;
  using Module::add_parameter;
  using Module::add_running_statistics;
};

inline const Parameter& parameter_named(const ArenaLayout& layout, const std::string& name) {
  for (const Parameter* p : layout.parameters()) {
    if (p->name == name) return *p;
  }
  throw std::runtime_error("no parameter " + name);
}

}  // namespace dtrain
