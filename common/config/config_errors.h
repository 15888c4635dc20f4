// All that is wrong with a config, so that its author hears of every mistake in one run.
#pragma once

#include <string>
#include <vector>

namespace muster {

class ConfigErrors {
 public:
  // `key` is the setting's path, "" for the text as a whole. `line` says all of it.
  void Add(const std::string& key, const std::string& line);
  // The text of this setting could not be read. Complaints that may follow from that are left out.
  void AddUnread(const std::string& key, const std::string& line);

  bool empty() const { return lines_.empty(); }
  size_t noted() const { return noted_; }  // with those that were left out
  // Error(kUsage) with a line for each mistake.
  void ThrowIfAny() const;

 private:
  bool MayFollow(const std::string& key) const;

  size_t noted_ = 0;
  std::vector<std::string> lines_;
  std::vector<std::string> unread_;  // keys without indices
};

}  // namespace muster
