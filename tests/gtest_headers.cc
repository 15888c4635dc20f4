// Empty source: a precompiled header needs a target, and a target needs a source
// (tests/CMakeLists.txt).
