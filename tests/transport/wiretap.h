// A man in the middle between a worker and the server. It records every byte and may change the
// data.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/base/fd.h"

namespace muster::testing {

enum class Way { kToServer, kToWorker };

// Gets a ZMTP frame (flags, length, body) and the number of earlier frames in this direction.
// Returns the frame to forward. Called by the tap's threads, one call at a time.
using Tamper =
    std::function<std::vector<std::string>(Way way, size_t number, const std::string& frame)>;

class Wiretap {
 public:
  // Forwards to `endpoint`, a tcp:// address of the loopback interface.
  explicit Wiretap(const std::string& endpoint, Tamper tamper = {});
  ~Wiretap();

  std::string endpoint() const;
  // All data sent in this direction so far, over all connections.
  std::string Heard(Way way) const;

 private:
  void Accept();
  void Pass(int from, int to, Way way);
  std::string Changed(Way way, size_t number, const std::string& frame);

  const std::string server_;
  const Tamper tamper_;
  UniqueFd listener_;
  mutable std::mutex mutex_;
  std::string heard_[2];
  std::vector<UniqueFd> sockets_;
  std::vector<std::jthread> threads_;
  std::jthread acceptor_;
};

// Connects to a tcp:// endpoint of the loopback interface. Returns none if there is no listener.
UniqueFd ConnectTo(const std::string& endpoint);

}  // namespace muster::testing
