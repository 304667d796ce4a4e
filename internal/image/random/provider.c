// An OpenSSL provider whose random numbers come from the kernel, each time.
//
// OpenSSL's own generators keep their state in the memory of the program. A
// sandbox that is forked or restored gets a copy of that memory, and so would
// choose the same keys and nonces as the other copies. This provider keeps no
// state. It offers one algorithm, CTR-DRBG, which is the name that OpenSSL 3
// asks for; openssl.cnf prefers it by the property provider=hutch.
//
// It uses no C library, so that it loads into every program with OpenSSL 3,
// whatever that program is linked to. The numbers are those of
// openssl/core_dispatch.h, which are a stable binary interface.
// To compile it: make -C internal/image/random

typedef unsigned long size;
typedef struct { int id; void (*function)(void); } Dispatch;
typedef struct { const char *names, *properties; const Dispatch *functions; const char *description; } Algorithm;
typedef struct { const char *key; unsigned type; void *data; size size, returned; } Param;

#define ENTRY(id, function) { id, (void (*)(void))function }

enum { INTEGER = 1, UNSIGNED = 2 }; // types of a Param
enum { EINTR = 4, READY = 1, STRENGTH = 256, MAX_REQUEST = 1 << 16 };

// getrandom fills at most 256 bytes, which the kernel never cuts short.
static long getrandom(void *to, size n) {
	long result;
	__asm__ volatile("syscall" : "=a"(result) : "a"(318), "D"(to), "S"(n), "d"(0) : "rcx", "r11", "memory");
	return result;
}

static int generate(void *generator, unsigned char *out, size n, unsigned strength, int resist, const unsigned char *more, size m) {
	while (n > 0) {
		long got = getrandom(out, n < 256 ? n : 256);
		if (got == -EINTR)
			continue;
		if (got <= 0)
			return 0;
		out += got;
		n -= got;
	}
	return 1;
}

static int equal(const char *a, const char *b) {
	while (*a && *a == *b)
		a++, b++;
	return *a == *b;
}

static int set(Param *p, size value) {
	if (p->size == sizeof(unsigned))
		*(unsigned *)p->data = value;
	else if (p->size == sizeof(size))
		*(size *)p->data = value;
	else
		return 0;
	p->returned = p->size;
	return 1;
}

static int get_parameters(void *generator, Param *p) {
	for (; p && p->key; p++) {
		if (equal(p->key, "state") && !set(p, READY))
			return 0;
		if (equal(p->key, "strength") && !set(p, STRENGTH))
			return 0;
		if (equal(p->key, "max_request") && !set(p, MAX_REQUEST))
			return 0;
	}
	return 1;
}

static const Param *parameters(void *generator, void *provider) {
	static const Param all[] = {
		{ "state", INTEGER, 0, sizeof(int), -1 },
		{ "strength", UNSIGNED, 0, sizeof(unsigned), -1 },
		{ "max_request", UNSIGNED, 0, sizeof(size), -1 },
		{ 0 },
	};
	return all;
}

// A generator needs memory of its own for nothing: any pointer stands for it.
static void *create(void *provider, void *parent, const Dispatch *of_parent) { return provider; }
static int yes(void) { return 1; }
static void nothing(void) {}

static const Dispatch generator[] = {
	ENTRY(1, create), ENTRY(2, nothing), // free
	ENTRY(3, yes), ENTRY(4, yes),        // instantiate, uninstantiate
	ENTRY(5, generate), ENTRY(6, yes),   // reseed
	ENTRY(8, yes), ENTRY(9, yes), ENTRY(10, nothing), // enable locking, lock, unlock
	ENTRY(12, parameters), ENTRY(15, get_parameters),
	{ 0 },
};

static const Algorithm *query(void *provider, int operation, int *no_cache) {
	static const Algorithm all[] = { { "CTR-DRBG", "provider=hutch", generator, "random numbers of the kernel" }, { 0 } };
	*no_cache = 0;
	return operation == 5 ? all : 0; // OSSL_OP_RAND
}

__attribute__((visibility("default")))
int OSSL_provider_init(void *handle, const Dispatch *in, const Dispatch **out, void **provider) {
	static const Dispatch functions[] = { ENTRY(1024, nothing), ENTRY(1027, query), { 0 } }; // teardown, query
	*out = functions;
	*provider = handle;
	return 1;
}
