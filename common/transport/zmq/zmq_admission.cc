#include "common/transport/zmq/zmq_admission.h"

#include <fmt/core.h>

#include <string_view>
#include <vector>

#include "common/base/error.h"
#include "common/link/protocol.h"
#include "common/transport/zmq/zmq_keys.h"
#include "common/transport/zmq/zmq_socket.h"

namespace muster {
namespace {

constexpr const char* kDomain = "muster";
constexpr std::string_view kUser = "muster";

// The frames of a ZAP request, in order. With PLAIN, the last two are name and password. With
// CURVE, the last one is the worker's public key, in the place of the name.
enum Request { kVersion, kId, kTheDomain, kAddress, kRoutingId, kMechanism, kName, kPassword };
constexpr size_t kPlainFrames = kPassword + 1, kCurveFrames = kName + 1;

// Formats a ZAP address for messages. TCP addresses stay unchanged; local ones have the form
// ":user:group:process".
std::string Describe(const std::string& address) {
  if (!address.starts_with(":")) return address;
  const size_t group = address.find(':', 1);
  const size_t process = address.rfind(':');
  if (group == std::string::npos || process == group) return address;
  return fmt::format("user {}, pid {}", address.substr(1, group - 1), address.substr(process + 1));
}

}  // namespace

void PresentToken(zmq::socket_t& socket, const LinkOptions& options) {
  MUSTER_CHECK(!options.token.empty());
  if (!options.encrypt) {
    socket.set(zmq::sockopt::plain_username, kUser);
    socket.set(zmq::sockopt::plain_password, options.token);
    return;
  }
  CurvePair mine = WorkerKeys(options.token);
  CurvePair servers = ServerKeys(options.token);
  socket.set(zmq::sockopt::curve_serverkey, zmq::buffer(servers.public_half));
  socket.set(zmq::sockopt::curve_publickey, zmq::buffer(mine.public_half));
  socket.set(zmq::sockopt::curve_secretkey, zmq::buffer(mine.secret_half));
  Forget(mine);
  Forget(servers);
}

Admission::Admission(zmq::context_t& context, const LinkOptions& options)
    : token_(options.token), encrypt_(options.encrypt), requests_(context, zmq::socket_type::rep) {
  MUSTER_CHECK(!token_.empty());
  if (encrypt_) {
    CurvePair workers = WorkerKeys(token_);
    worker_key_.assign(workers.public_half.begin(), workers.public_half.end());
    Forget(workers);
  }
  requests_.set(zmq::sockopt::linger, 0);
  requests_.bind("inproc://zeromq.zap.01");
}

void Admission::Guard(zmq::socket_t& socket) const {
  socket.set(zmq::sockopt::zap_domain, kDomain);
  if (!encrypt_) {
    socket.set(zmq::sockopt::plain_server, true);
    return;
  }
  CurvePair mine = ServerKeys(token_);
  socket.set(zmq::sockopt::curve_server, true);
  socket.set(zmq::sockopt::curve_secretkey, zmq::buffer(mine.secret_half));
  Forget(mine);
}

bool Admission::Knows(const std::vector<std::string>& request) const {
  if (encrypt_) {
    return request.size() == kCurveFrames && request[kMechanism] == "CURVE" &&
           SameToken(request[kName], worker_key_);
  }
  return request.size() == kPlainFrames && request[kMechanism] == "PLAIN" &&
         request[kName] == kUser && SameToken(request[kPassword], token_);
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
  const bool whole = request.size() > kMechanism;
  const bool admitted = whole && Knows(request);
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
