// A TCP port for a program that wants one in MASTER_PORT.
#pragma once

namespace dtrain {

// A port on which nothing listened a moment ago, chosen by the system. dtrain itself listens on
// none, so two jobs never fight over one. Throws std::system_error.
int find_free_port();

}  // namespace dtrain
