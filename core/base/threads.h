// Starting threads, with an error that says what could not be started and what to do.
#pragma once

#include <functional>
#include <string_view>
#include <thread>

namespace dtrain {

// std::thread for `body`. `what` names it in the error ("thread 3 of 8 of a pool"). Throws
// DeviceError where a limit of the system is reached.
std::thread start_thread(std::string_view what, std::function<void()> body);

}  // namespace dtrain
