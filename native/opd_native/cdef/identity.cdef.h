void opd_identity_of(const void *bytes, size_t length, void *identity);
int opd_identity_of_stacks(const uint8_t *flags, const uint32_t *starts, size_t stacks,
                           const uint32_t *images, const uint64_t *addresses, size_t frames,
                           const void *image_identities, size_t image_count,
                           void *identities);
