// An accepted address prints and parses to itself. An error names the text. Does not resolve names,
// which is up to the system.
#include "common/link/tcp_address.h"
#include "common/transport/local/local_address.h"
#include "tests/fuzz/fuzz.h"

namespace muster::fuzz {
namespace fuzz_endpoint {

void CheckTcp(const std::string& text) {
  OrError(text, [&] {
    const TcpAddress address = TcpAddress::Parse(text);
    const TcpAddress again = TcpAddress::Parse(address.ToEndpoint());
    Require(again.host == address.host && again.port == address.port,
            "the address changes when printed and parsed");
    Require(again.ToEndpoint() == address.ToEndpoint(),
            "the address prints differently the second time");
  });
}

// The name connects two processes, so it must reach the system unchanged.
void CheckLocal(const std::string& text) {
  OrError(text, [&] {
    const LocalAddress address(text);
    Require(address.address.sun_path[0] == '\0', "not in the abstract namespace");
    const std::string name = text.substr(std::string_view("local://@").size());
    const size_t before = offsetof(sockaddr_un, sun_path) + 1;
    Require(std::string_view(address.address.sun_path + 1, address.size - before) == name,
            "the name differs");
  });
}

void CheckListen(const std::string& endpoint, const std::string& bind) {
  OrError(endpoint.empty() ? bind : "", [&] {
    const ListenAddress address = ChooseListenAddress(endpoint, bind);
    Require(!address.bind.empty() && !address.endpoint.empty(), "no address to listen on");
    if (!IsTcp(address.endpoint)) return;
    Require(!TcpAddress::Parse(address.endpoint).any_host(),
            "workers cannot connect to the address");
  });
}

}  // namespace fuzz_endpoint
}  // namespace muster::fuzz

FUZZ_TARGET(endpoint) {
  muster::fuzz::SilenceLogs();
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (text.find('\0') != text.npos) return 0;  // impossible on a command line
  muster::fuzz::fuzz_endpoint::CheckTcp(text);
  muster::fuzz::fuzz_endpoint::CheckTcp("tcp://" + text);
  muster::fuzz::fuzz_endpoint::CheckLocal("local://@" + text);
  const size_t half = std::min(text.find('\n'), text.size());
  muster::fuzz::fuzz_endpoint::CheckListen(text.substr(0, half),
                                           text.substr(std::min(half + 1, text.size())));
  return 0;
}
