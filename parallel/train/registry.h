// Everything that a recipe can name, in one place: what the command line is given.
#pragma once

#include "dtrain/core/config/config.h"
#include "dtrain/data/registry.h"
#include "dtrain/models/registry.h"

namespace dtrain {

struct Registry {
  ModelRegistry models;
  DatasetRegistry datasets;
  KindTable kinds() const {
    KindTable table;
    models.register_kinds(table);
    datasets.register_kinds(table);
    return table;
  }
};

// With the built-in models and data sets.
inline Registry builtin_registry() {
  Registry registry;
  register_builtin_models(registry.models);
  register_builtin_datasets(registry.datasets);
  return registry;
}

}  // namespace dtrain
