// Words of messages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dtrain {

// "1 process", "2 processes"; the noun's plural ends with s or, after s, with es.
std::string counted(std::int64_t count, std::string_view noun);

}  // namespace dtrain
