// The version of dtrain, as the build was given it.
#pragma once

#include <string_view>

namespace dtrain {

// "0.1.0".
std::string_view version();

}  // namespace dtrain
