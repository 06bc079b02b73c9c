// opd/dto_load.h
int opd_dto_load(const char *path, uint32_t own_namespace, void **handle, char *reason);
void *opd_dto_symbol(void *handle, const char *name);
