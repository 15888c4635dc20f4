// Admission (ZAP): a request with any frames is accepted exactly if it has the token. Each request
// gets one reply with its number.
#include "common/transport/zmq/zmq_admission.h"
#include "tests/fuzz/fuzz.h"

namespace muster::fuzz {
namespace fuzz_door {

constexpr const char* kToken = "0123456789abcdef0123456789abcdef";

// libzmq's side, in this thread.
struct Door {
  Door() { asks.connect("inproc://zeromq.zap.01"); }
  zmq::context_t context{0};
  Admission admission{context, {.token = kToken}};
  zmq::socket_t asks{context, zmq::socket_type::req};
};

std::vector<std::string> Answer(Door& door) {
  std::vector<std::string> frames;
  for (bool more = true; more;) {
    zmq::message_t frame;
    Require(door.asks.recv(frame, zmq::recv_flags::dontwait).has_value(), "no reply");
    frames.push_back(frame.to_string());
    more = frame.more();
  }
  return frames;
}

void Ask(Door& door, const std::vector<std::string>& request) {
  for (size_t i = 0; i < request.size(); ++i) {
    const bool last = i + 1 == request.size();
    door.asks.send(zmq::buffer(request[i]),
                   last ? zmq::send_flags::none : zmq::send_flags::sndmore);
  }
  const auto who = door.admission.Answer();
  const std::vector<std::string> answer = Answer(door);
  Require(who.has_value() && answer.size() == 6, "expected one reply of six frames");
  const bool right = request.size() == 8 && request[5] == "PLAIN" && request[6] == "muster" &&
                     request[7] == kToken;
  Require((answer[2] == "200") == right,
          right ? "a worker was refused" : "a stranger was accepted");
  Require(who->empty() || !right, "a peer was both accepted and refused");
  Require(request.size() < 6 || answer[1] == request[1], "a reply to another request");
}

}  // namespace fuzz_door
}  // namespace muster::fuzz

// A request like libzmq's, with parts replaced by the input according to the first byte's bits, or
// arbitrary frames.
FUZZ_TARGET(door) {
  using namespace muster::fuzz;
  using namespace muster::fuzz::fuzz_door;
  SilenceLogs();
  static Door door;
  Input input(data, size);
  const uint8_t foreign = input.Byte();
  std::vector<std::string> request{"1.0", "1",     "muster", "127.0.0.1",
                                   "",    "PLAIN", "muster", kToken};
  for (size_t i = 0; i < request.size(); ++i) {
    if ((foreign >> i & 1) != 0) request[i] = input.Piece();
  }
  if (input.Byte() % 2 == 1) {
    request.clear();
    do request.push_back(input.Piece());
    while (!input.empty() && request.size() < 20);
  }
  Ask(door, request);
  return 0;
}
