#include "dtrain/core/base/system_error.h"

#include "dtrain/core/base/error.h"

namespace dtrain {

std::string system_error_text(const std::system_error& error) {
  const std::string text = error.what();
  if (error.code().category() != std::generic_category() &&
      error.code().category() != std::system_category()) {
    return text;
  }
  // what() ends with the description of the errno value.
  const std::size_t end = text.rfind(error.code().message());
  return text.substr(0, end) + (end == std::string::npos ? ": " : "") +
         errno_text(error.code().value());
}

}  // namespace dtrain
