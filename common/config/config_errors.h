// All mistakes of a config, so that one run reports them all, and where its settings were given.
#pragma once

#include <fmt/core.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace muster {

class ConfigErrors {
 public:
  // `file` is the place of a setting that was written nowhere.
  explicit ConfigErrors(std::string file) : file_(std::move(file)) {}

  // Where each setting was given: "run.epochs" → "configs/cifar10.txtpb:7". A repeated field has an
  // entry for each element: "model.layer[2].name".
  std::map<std::string, std::string> locations;
  // Settings that were given but have been removed from Muster, each with its place.
  std::vector<std::string> removed;

  // The place of the key, or of the nearest message around it that was written somewhere.
  std::string Where(std::string key) const;

  // Notes a mistake: its place, the key, and what was expected.
  template <typename... Args>
  void Fail(const std::string& key, fmt::format_string<Args...> format, Args&&... args) {
    Add(key, fmt::format("{}: {}: {}", Where(key), key,
                         fmt::format(format, std::forward<Args>(args)...)));
  }
  // The same with the whole line given.
  void Add(const std::string& key, const std::string& line);
  // The text of this setting could not be read. Mistakes that may follow from that are left out.
  void AddUnread(const std::string& key, const std::string& line);

  bool empty() const { return lines_.empty(); }
  size_t noted() const { return noted_; }  // including those that were left out
  // Throws Error(kUsage) with a line for each mistake.
  void ThrowIfAny() const;

 private:
  bool MayFollow(const std::string& key) const;

  std::string file_;
  size_t noted_ = 0;
  std::vector<std::string> lines_;
  std::vector<std::string> unread_;  // keys without indices
};

}  // namespace muster
