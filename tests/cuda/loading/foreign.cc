// A library of that name which has nothing to do with Muster.
extern "C" int what_nobody_asks_for() { return 0; }
