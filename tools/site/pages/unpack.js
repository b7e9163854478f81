// The data and the charting library are packed: gzip, as text.
const unpacked = async (id) => {
  const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
};
Promise.all([unpacked("data"), unpacked("echarts")]).then(([data, library]) => {
  document.getElementById("data").textContent = data;
  const script = document.createElement("script");
  script.textContent = library;
  document.head.append(script);
  run();
});
