// The text of an exception that was caught to be told elsewhere.
#pragma once

#include <exception>
#include <string>

namespace dtrain {

// what() of a std::exception; "unknown error" of anything else. `error` is not null.
std::string message_of(const std::exception_ptr& error);

}  // namespace dtrain
