// The named values of a run, which programs and the server have told (wire.Tell).
//
// Any thread may use them.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

namespace muster {

class ToldValues {
 public:
  struct Value {
    int64_t step = 0;
    std::string bytes;
  };

  void Put(const std::string& key, Value value);
  std::optional<Value> Find(const std::string& key) const;
  // Waits at most this long.
  std::optional<Value> Await(const std::string& key, std::chrono::milliseconds patience) const;
  std::map<std::string, Value> All() const;
  size_t bytes() const;  // of all keys and values
  // The run has failed: nobody waits for values any more.
  void Close() { is_closed_ = true; }
  bool is_closed() const { return is_closed_; }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable told_;
  std::map<std::string, Value> values_;  // guarded by mutex_, like bytes_
  size_t bytes_ = 0;
  std::atomic<bool> is_closed_{false};
};

}  // namespace muster
