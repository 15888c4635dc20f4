// The GPUs that the stand-ins for NVML and the CUDA driver report: lines of a file that is read at
// every call, so that a test can change them while a program runs.
//
//   uuid=GPU-1 name=Fake_H100 total=80000 used=10 …
//
// Each line is a GPU; '_' stands for a space; memory is in MiB.
//
// All keys except uuid are optional: name, pci, total, used, free, util, rests=1 (only the first
// util counts), temp, slow (slowdown temperature), power, cores=0-1, node=0, pids=41:500,42
// (compute processes; MiB), draws=77:10 (graphics processes), mode (compute mode), ecc=0 (has ECC,
// with this many uncorrected errors), nvlink=A and pcie=A (GPUs with the same letter are linked),
// parts=MIG-1,MIG-2 (a GPU in MIG mode), speed=2 (for CUDA's order), fail=uuid:15,memory:999
// (status codes of queries), crash=1 (crashes the process that uses CUDA), hang=memory (this call
// does not return, and the file FAKE_CARDS.hangs appears; or init, search by PCI address, cuda, or
// any word of fail=).
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace fake {

using Card = std::map<std::string, std::string>;

inline std::vector<std::string> Split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, at);) parts.push_back(part);
  return parts;
}

inline std::string Of(const Card& card, const std::string& key, const std::string& otherwise = "") {
  const auto found = card.find(key);
  return found == card.end() ? otherwise : found->second;
}
inline long long NumberOf(const Card& card, const std::string& key, long long otherwise) {
  const std::string text = Of(card, key);
  return text.empty() ? otherwise : std::atoll(text.c_str());
}

inline std::vector<Card> ReadCards() {
  std::vector<Card> cards;
  const char* const path = std::getenv("FAKE_CARDS");
  std::ifstream file(path != nullptr ? path : "");
  for (std::string line; std::getline(file, line);) {
    Card card;
    for (const std::string& word : Split(line, ' ')) {
      const size_t equals = word.find('=');
      if (equals != std::string::npos) card[word.substr(0, equals)] = word.substr(equals + 1);
    }
    if (!card.empty()) cards.push_back(card);
  }
  return cards;
}

inline void HangIf(const Card& card, const std::string& call) {
  if (Of(card, "hang") != call) return;
  std::ofstream(std::string(std::getenv("FAKE_CARDS")) + ".hangs").flush();
  for (;;) ::pause();
}
inline void HangIfAny(const std::string& call) {
  for (const Card& card : ReadCards()) HangIf(card, call);
}

inline std::string WithSpaces(std::string text) {
  std::replace(text.begin(), text.end(), '_', ' ');
  return text;
}

}  // namespace fake
