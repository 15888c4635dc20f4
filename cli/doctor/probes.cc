#include "cli/doctor/probes.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string_view>

#include "common/base/resource_limits.h"
#include "common/base/unique_fd.h"

namespace muster {
namespace {

template <typename Address>
std::string TryToListen(int family, const Address& address, socklen_t size) {
  const UniqueFd socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return ErrorText(errno);
  const int yes = 1;  // a port that a run has just left
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      ::listen(socket.get(), 1) != 0) {
    return ErrorText(errno);
  }
  return "";
}

}  // namespace

std::string TryToWrite(const std::string& directory) {
  const UniqueFd file(::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (file.valid()) return ::write(file.get(), "x", 1) == 1 ? "" : ErrorText(errno);
  if (errno != EOPNOTSUPP && errno != EISDIR) return ErrorText(errno);
  // A file system without nameless files.
  std::string name = directory + "/.muster-doctor-XXXXXX";
  const UniqueFd named(::mkostemp(name.data(), O_CLOEXEC));
  if (!named.valid()) return ErrorText(errno);
  ::unlink(name.c_str());
  return ::write(named.get(), "x", 1) == 1 ? "" : ErrorText(errno);
}

std::string TryToShareMemory() {
  constexpr off_t kBytes = 1 << 20;
  const UniqueFd memory(::memfd_create("muster-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.valid() || ::ftruncate(memory.get(), kBytes) != 0) return ErrorText(errno);
  void* const place = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (place == MAP_FAILED) return ErrorText(errno);
  static_cast<char*>(place)[kBytes - 1] = 1;
  const bool sealed = ::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE) == 0;
  std::string error = sealed ? "" : ErrorText(errno);
  ::munmap(place, kBytes);
  return error;
}

std::string TryLoopbackTcp() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return TryToListen(AF_INET, address, sizeof address);
}

std::string TryUnixSocket() {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = "muster-doctor-" + std::to_string(::getpid());
  name.copy(address.sun_path + 1, sizeof address.sun_path - 2);  // the first byte 0: abstract
  return TryToListen(AF_UNIX, address,
                     static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size()));
}

}  // namespace muster
