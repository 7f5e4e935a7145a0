#include "dtrain/launcher/free_port.h"

#include <cerrno>
#include <sys/socket.h>
#include <system_error>

#include <netinet/in.h>

#include "dtrain/core/base/files.h"

namespace dtrain {

int find_free_port() {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (!socket || ::bind(socket.get(), generic, size) != 0 ||
      ::getsockname(socket.get(), generic, &size) != 0) {
    throw std::system_error(errno, std::generic_category(), "cannot find a free port");
  }
  return ntohs(address.sin_port);
}

}  // namespace dtrain
