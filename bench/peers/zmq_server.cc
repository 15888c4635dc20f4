// A minimal ZeroMQ parameter server. Workers push their gradients in chunks without copying. When a
// chunk has arrived from all workers, the server averages it and sends the average back. There is
// no update, no header except a chunk number, and no supervision.
//
//   zmq_server [--workers 2] [--size 104857600] [--chunk-bytes 1048576] [--transport TCP|IPC]
//
// Every worker checks every float of the last round. Prints one JSON object.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "common/base/json.h"
#include "common/base/program_options.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  uint32_t workers = 2;
  size_t bytes = 100 << 20;
  size_t chunk_bytes = 1 << 20;
  std::string transport = "TCP";
  int64_t rounds = 0;

  size_t chunks() const { return (bytes + chunk_bytes - 1) / chunk_bytes; }
  size_t floats(size_t chunk) const {
    return std::min(chunk_bytes, bytes - chunk * chunk_bytes) / sizeof(float);
  }
  size_t begin(size_t chunk) const { return chunk * (chunk_bytes / sizeof(float)); }
};

constexpr int64_t kWarmUp = 3;

zmq::socket_t MakeSocket(zmq::context_t& context, zmq::socket_type type) {
  zmq::socket_t socket(context, type);
  socket.set(zmq::sockopt::sndhwm, 0);
  socket.set(zmq::sockopt::rcvhwm, 0);
  socket.set(zmq::sockopt::linger, 0);
  return socket;
}

zmq::message_t Borrow(float* data, size_t floats) {
  return zmq::message_t(
      data, floats * sizeof(float), [](void*, void*) {}, nullptr);
}

// Two buffers for results, used alternately, because the previous result may still be in transit.
// The last one may be in transit even after the server has finished.
using Results = std::array<std::vector<float>, 2>;

// Returns false if a worker was silent for too long.
bool Serve(const Options& options, zmq::socket_t& socket, Results& results) {
  for (std::vector<float>& result : results) result.resize(options.bytes / sizeof(float));
  struct Arrived {
    std::vector<zmq::message_t> peers, tensors;
  };
  std::vector<Arrived> arrived(options.chunks());
  const float scale = 1.0f / static_cast<float>(options.workers);
  for (int64_t round = 0; round < options.rounds + kWarmUp; ++round) {
    for (size_t i = 0; i < options.workers * options.chunks(); ++i) {
      zmq::message_t peer, number, tensor;
      if (!socket.recv(peer)) return false;
      (void)socket.recv(number);
      (void)socket.recv(tensor);
      const uint32_t chunk = *number.data<uint32_t>();
      Arrived& parts = arrived[chunk];
      parts.peers.push_back(std::move(peer));
      parts.tensors.push_back(std::move(tensor));
      if (parts.tensors.size() < options.workers) continue;
      float* to = results[round % 2].data() + options.begin(chunk);
      const size_t floats = options.floats(chunk);
      const float* first = parts.tensors[0].data<float>();
      const float* second = parts.tensors[parts.tensors.size() > 1 ? 1 : 0].data<float>();
      if (options.workers == 1) {
        std::memcpy(to, first, floats * sizeof(float));
      } else {
        for (size_t f = 0; f < floats; ++f) to[f] = first[f] + second[f];
      }
      for (size_t w = 2; w < options.workers; ++w) {
        const float* more = parts.tensors[w].data<float>();
        for (size_t f = 0; f < floats; ++f) to[f] += more[f];
      }
      for (size_t f = 0; f < floats; ++f) to[f] *= scale;
      for (zmq::message_t& back : parts.peers) {
        socket.send(back, zmq::send_flags::sndmore);
        socket.send(zmq::const_buffer(&chunk, sizeof chunk), zmq::send_flags::sndmore);
        zmq::message_t result = Borrow(to, floats);
        socket.send(result, zmq::send_flags::none);
      }
      parts.peers.clear();
      parts.tensors.clear();
    }
  }
  return true;
}

// Returns the duration of each round in seconds. Empty if a float was wrong.
std::vector<double> Work(const Options& options, uint32_t rank, const std::string& endpoint) {
  zmq::context_t context(1);
  zmq::socket_t socket = MakeSocket(context, zmq::socket_type::dealer);
  socket.connect(endpoint);
  std::vector<float> gradient(options.bytes / sizeof(float), static_cast<float>(rank + 1));
  std::vector<float> weights(gradient.size());
  std::vector<double> seconds;
  for (int64_t round = 0; round < options.rounds + kWarmUp; ++round) {
    const Clock::time_point begin = Clock::now();
    for (uint32_t chunk = 0; chunk < options.chunks(); ++chunk) {
      socket.send(zmq::const_buffer(&chunk, sizeof chunk), zmq::send_flags::sndmore);
      zmq::message_t tensor = Borrow(gradient.data() + options.begin(chunk), options.floats(chunk));
      socket.send(tensor, zmq::send_flags::none);
    }
    for (size_t i = 0; i < options.chunks(); ++i) {
      zmq::message_t number, tensor;
      (void)socket.recv(number);
      (void)socket.recv(tensor);
      std::memcpy(weights.data() + options.begin(*number.data<uint32_t>()), tensor.data(),
                  tensor.size());
    }
    if (round >= kWarmUp) {
      seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    }
  }
  const float expected = static_cast<float>(options.workers + 1) / 2;
  const bool good =
      std::all_of(weights.begin(), weights.end(), [=](float w) { return w == expected; });
  return good ? seconds : std::vector<double>{};
}

int Run(Options options) {
  options.bytes = options.bytes / sizeof(float) * sizeof(float);
  if (options.rounds == 0) {
    options.rounds = std::clamp<int64_t>(
        static_cast<int64_t>(2e9 / (static_cast<double>(options.bytes) + 4e5)), 20, 4000);
  }
  // ZeroMQ sockets do not survive fork(), so workers are started first and get the address later.
  int address[2], result[2];
  if (::pipe(address) != 0 || ::pipe(result) != 0) return 1;
  std::vector<pid_t> children;
  for (uint32_t rank = 0; rank < options.workers; ++rank) {
    const pid_t child = ::fork();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    char endpoint[256];
    if (::read(address[0], endpoint, sizeof endpoint) != sizeof endpoint) ::_exit(1);
    std::vector<double> seconds = Work(options, rank, endpoint);
    if (seconds.empty()) {
      std::fprintf(stderr, "zmq_server: wrong average at rank %u\n", rank);
      ::_exit(1);
    }
    if (rank == 0) {
      std::sort(seconds.begin(), seconds.end());
      const double found[] = {seconds[seconds.size() / 2], seconds[seconds.size() * 99 / 100]};
      (void)!::write(result[1], found, sizeof found);
    }
    ::_exit(0);
  }
  zmq::context_t context(1);
  zmq::socket_t socket = MakeSocket(context, zmq::socket_type::router);
  socket.bind(options.transport == "TCP" ? std::string("tcp://127.0.0.1:*")
                                         : "ipc://@muster-peer-" + std::to_string(::getpid()));
  char endpoint[256] = {};
  std::strncpy(endpoint, socket.get(zmq::sockopt::last_endpoint).c_str(), sizeof endpoint - 1);
  for (uint32_t rank = 0; rank < options.workers; ++rank) {
    (void)!::write(address[1], endpoint, sizeof endpoint);
  }
  ::close(result[1]);  // a failed worker closes its end, and a read then returns end of file
  socket.set(zmq::sockopt::rcvtimeo, 30000);
  Results results;
  if (!Serve(options, socket, results)) {
    std::fprintf(stderr, "zmq_server: a worker sent nothing for 30 s\n");
    for (const pid_t child : children) ::kill(child, SIGKILL);
    return 1;
  }
  double found[2];
  if (::read(result[0], found, sizeof found) != sizeof found) return 1;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    if (status != 0) return 1;
  }
  const nlohmann::ordered_json json{{"peer", "bare ZeroMQ server, " + options.transport},
                                    {"workers", options.workers},
                                    {"bytes", options.bytes},
                                    {"chunk_bytes", options.chunk_bytes},
                                    {"rounds", options.rounds},
                                    {"p50_us", found[0] * 1e6},
                                    {"p99_us", found[1] * 1e6},
                                    {"verified", true}};
  std::printf("%s\n", muster::JsonText(json).c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  muster::ProgramOptions program("Measures rounds of a minimal parameter server over ZeroMQ.");
  program.Add("--workers", options.workers).ShowDefault().InRange(1, 64);
  program.Add("--size", options.bytes, "size of the weights in bytes")
      .ShowDefault()
      .InRange(64, int64_t{1} << 32);
  program.Add("--chunk-bytes", options.chunk_bytes).ShowDefault();
  program.Add("--transport", options.transport).OneOf({"TCP", "IPC"});
  program.Add("--rounds", options.rounds, "number of rounds; 0: depends on the size");
  if (const auto exit_code = program.Parse(argc, argv)) return *exit_code;
  return Run(options);
}
