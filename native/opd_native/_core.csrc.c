#include "opd/profile_hash.h"
