#include "common/transport/zmq/zmq_admission.h"

#include <fmt/core.h>

#include <string_view>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/link/protocol.h"
#include "common/transport/zmq/zmq_socket.h"

namespace muster {
namespace {

constexpr const char* kDomain = "muster";
constexpr std::string_view kUser = "muster";

// ZAP's frames, in this order.
enum Request { kVersion, kId, kTheDomain, kAddress, kRoutingId, kMechanism, kName, kPassword };
constexpr size_t kFrames = kPassword + 1;

// The address of a TCP connection. That of a local one is ":user:group:process".
std::string Describe(const std::string& address) {
  if (!address.starts_with(":")) return address;
  const size_t group = address.find(':', 1);
  const size_t process = address.rfind(':');
  if (group == std::string::npos || process == group) return address;
  return fmt::format("user {}, pid {}", address.substr(1, group - 1), address.substr(process + 1));
}

}  // namespace

void PresentToken(zmq::socket_t& socket, const std::string& token) {
  MUSTER_CHECK(!token.empty());
  socket.set(zmq::sockopt::plain_username, kUser);
  socket.set(zmq::sockopt::plain_password, token);
}

Admission::Admission(zmq::context_t& context, std::string token)
    : token_(std::move(token)), requests_(context, zmq::socket_type::rep) {
  MUSTER_CHECK(!token_.empty());
  requests_.set(zmq::sockopt::linger, 0);
  requests_.bind("inproc://zeromq.zap.01");
}

void Admission::Guard(zmq::socket_t& socket) {
  socket.set(zmq::sockopt::plain_server, true);
  socket.set(zmq::sockopt::zap_domain, kDomain);
}

bool Admission::Pending() { return HasInput(requests_); }

std::optional<std::string> Admission::Answer() {
  std::vector<std::string> request;
  for (bool more = true; more;) {
    zmq::message_t frame;
    if (!requests_.recv(frame, zmq::recv_flags::dontwait)) return std::nullopt;
    request.push_back(frame.to_string());
    more = frame.more();
  }
  const bool whole = request.size() == kFrames && request[kMechanism] == "PLAIN";
  const bool admitted = whole && request[kName] == kUser && SameToken(request[kPassword], token_);
  const std::string_view id = whole ? std::string_view(request[kId]) : "";
  const std::string_view reply[] = {"1.0", id, admitted ? "200" : "400", "", "", ""};
  for (size_t i = 0; i < std::size(reply); ++i) {
    const bool last = i + 1 == std::size(reply);
    (void)requests_.send(zmq::buffer(reply[i]),
                         last ? zmq::send_flags::none : zmq::send_flags::sndmore);
  }
  return admitted ? "" : Describe(whole ? request[kAddress] : "");
}

}  // namespace muster
