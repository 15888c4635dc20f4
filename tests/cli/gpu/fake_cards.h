// The cards that the stand-ins for NVML and for CUDA's driver show: lines of a file, read again at
// every call, so that a test changes them while a program runs.
//
//   uuid=GPU-1 name=Fake_H100 total=80000 used=10 …   one card; '_' stands for a space, memory in
//   MiB
//
// Keys, all but uuid optional: name, pci, total, used, free, util, temp, slow (from where it slows
// down), power, cores=0-1, node=0, pids=41:500,42 (compute; MiB), draws=77:10, mode (of computing),
// ecc=0 (it has ECC, and so many errors that it could not correct),
// nvlink=A and pcie=A (cards of one letter are joined), parts=MIG-1,MIG-2 (a divided card),
// speed=2 (CUDA's order), fail=uuid:15,memory:999 (what a query answers), crash=1 (takes
// CUDA's process with it).
#pragma once

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

inline std::string WithSpaces(std::string text) {
  std::replace(text.begin(), text.end(), '_', ' ');
  return text;
}

}  // namespace fake
