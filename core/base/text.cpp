#include "dtrain/core/base/text.h"

#include <fmt/format.h>

namespace dtrain {

std::string counted(std::int64_t count, std::string_view noun) {
  const std::string_view ending = count == 1 ? "" : noun.ends_with('s') ? "es" : "s";
  return fmt::format("{} {}{}", count, noun, ending);
}

}  // namespace dtrain
