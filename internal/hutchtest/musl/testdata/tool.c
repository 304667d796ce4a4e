// tool is the program of the musl image: its first argument says what it does.
#include <arpa/inet.h>
#include <grp.h>
#include <netdb.h>
#include <pthread.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static void stop(const char *what) {
	perror(what);
	exit(1);
}

// whoami prints the user as the list of users names it, its ids and its groups.
static void whoami(void) {
	struct passwd *p = getpwuid(getuid());
	gid_t groups[32];
	int n = getgroups(32, groups);
	printf("%s %d %d", p ? p->pw_name : "?", getuid(), getgid());
	for (int i = 0; i < n; i++)
		printf(" +%d", groups[i]);
	puts("");
}

static void *add(void *sum) {
	__atomic_add_fetch((long *)sum, 1, __ATOMIC_SEQ_CST);
	return 0;
}

// threads starts and joins threads.
static void threads(int count) {
	pthread_t *all = calloc(count, sizeof *all);
	long sum = 0;
	for (int i = 0; i < count; i++)
		if (pthread_create(&all[i], 0, add, &sum))
			stop("pthread_create");
	for (int i = 0; i < count; i++)
		pthread_join(all[i], 0);
	printf("%ld threads\n", sum);
}

// get prints the body of an HTTP answer. It finds the host with musl's own resolver.
static void get(const char *host, const char *port) {
	struct addrinfo *found, hints = {.ai_socktype = SOCK_STREAM};
	int err = getaddrinfo(host, port, &hints, &found);
	if (err) {
		fprintf(stderr, "%s: %s\n", host, gai_strerror(err));
		exit(1);
	}
	int s = socket(found->ai_family, found->ai_socktype, 0);
	if (s < 0 || connect(s, found->ai_addr, found->ai_addrlen))
		stop(host);
	dprintf(s, "GET / HTTP/1.0\r\nHost: %s\r\n\r\n", host);
	FILE *answer = fdopen(s, "r");
	char line[512];
	int body = 0;
	while (fgets(line, sizeof line, answer)) {
		if (body)
			fputs(line, stdout);
		body |= line[0] == '\r';
	}
}

// serve answers HTTP requests with its count of them, which is only in its memory.
static void serve(int port) {
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
	int on = 1, l = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (l < 0 || bind(l, (struct sockaddr *)&at, sizeof at) || listen(l, 8))
		stop("listen");
	for (int count = 0;;) {
		char request[4096];
		int c = accept(l, 0, 0);
		if (c < 0)
			stop("accept");
		if (read(c, request, sizeof request) > 0)
			dprintf(c, "HTTP/1.0 200 OK\r\n\r\nanswer %d of musl\n", ++count);
		close(c);
	}
}

// cat prints files.
static void cat(char **files) {
	for (; *files; files++) {
		FILE *f = fopen(*files, "r");
		if (!f)
			stop(*files);
		for (int c; (c = getc(f)) != EOF;)
			putchar(c);
		fclose(f);
	}
}

// libraries prints the files of libraries that the program has loaded.
static void libraries(void) {
	char line[4096], last[4096] = "";
	FILE *maps = fopen("/proc/self/maps", "r");
	if (!maps)
		stop("/proc/self/maps");
	while (fgets(line, sizeof line, maps)) {
		char *path = strchr(line, '/');
		if (path && strstr(path, "/lib/") && strcmp(path, last))
			fputs(strcpy(last, path), stdout);
	}
}

int main(int argc, char **argv) {
	const char *verb = argc > 1 ? argv[1] : "";
	setvbuf(stdout, 0, _IOLBF, 0);
	if (!strcmp(verb, "whoami"))
		whoami();
	else if (!strcmp(verb, "threads") && argc == 3)
		threads(atoi(argv[2]));
	else if (!strcmp(verb, "get") && argc == 4)
		get(argv[2], argv[3]);
	else if (!strcmp(verb, "serve") && argc == 3)
		serve(atoi(argv[2]));
	else if (!strcmp(verb, "cat"))
		cat(argv + 2);
	else if (!strcmp(verb, "libraries"))
		libraries();
	else {
		fprintf(stderr, "tool: unknown verb %s\n", verb);
		return 2;
	}
	return 0;
}
