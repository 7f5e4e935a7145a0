// Names of a recipe to what they mean.
#pragma once

#include <string>

#include "dtrain/core/autograd/functions.h"
#include "dtrain/core/autograd/parameter.h"

namespace dtrain {

// "relu", "gelu", "sigmoid", "tanh". Throws ConfigError for other names.
Value (*activation_named(const std::string& name))(Pass&, const Value&);

// "default", "zeros", "kaiming_uniform", ... Throws ConfigError for other names.
InitScheme init_named(const std::string& name);

}  // namespace dtrain
