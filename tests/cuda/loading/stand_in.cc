// An old version of a library that a plugin needs. It lacks a function.
extern "C" int muster_stand_in_create() { return 0; }
#ifdef MUSTER_NEW
extern "C" int muster_stand_in_matmul() { return 0; }
#endif
