// Somebody who sits between a worker and the server: he keeps a copy of every byte, and may change
// what passes.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/base/fd.h"

namespace muster::testing {

enum class Way { kToServer, kToWorker };

// Given a frame of ZMTP (flags, length, body) and how many came before it this way; returns what
// goes on instead. Called by the tap's threads, one call at a time.
using Tamper =
    std::function<std::vector<std::string>(Way way, size_t number, const std::string& frame)>;

class Wiretap {
 public:
  // Before `endpoint`, a tcp:// one of the loopback interface.
  explicit Wiretap(const std::string& endpoint, Tamper tamper = {});
  ~Wiretap();

  std::string endpoint() const;
  // What has passed this way so far, of all connections, as it was sent.
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

// A connection to a tcp:// endpoint of the loopback interface; none if nobody listens there.
UniqueFd ConnectTo(const std::string& endpoint);

}  // namespace muster::testing
