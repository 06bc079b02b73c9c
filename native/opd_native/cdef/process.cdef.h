void opd_process_return_memory(void);
void opd_process_trim_memory(void);
int opd_process_die_with_parent(void);
